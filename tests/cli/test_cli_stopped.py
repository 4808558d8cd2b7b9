"""The program is stopped, or whoever reads it goes away, or its disk is full: a plain line, and no traceback."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.common.programs import ROOT
from tests.store.stored_runs import build

PROGRAM = [sys.executable, "-m", "prunedata"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("stored") / "run.zarr"
    build(place)
    return place


@pytest.fixture
def ctrl_c():
    """Let programs that are started be told of Ctrl-C, though whoever runs the tests in the background is not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_ctrl_c_is_told_in_a_line(tmp_path, ctrl_c):
    begun = tmp_path / "begun"
    command = [*PROGRAM, "index", f"pipe:touch {begun}; sleep 60", "--output", str(tmp_path / "index.json")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=ENVIRONMENT
    ) as running:
        while not begun.exists():
            assert running.poll() is None
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        out, err = running.communicate()
    assert (running.returncode, out, err) == (130, "", "prunedata: stopped\n")
    assert not (tmp_path / "index.json").exists()


@pytest.mark.parametrize("command", ["inspect {}", "inspect {} --json", "suspects {}", "advise {}", "--help"])
def test_a_reader_that_leaves_before_or_in_the_middle(place, command):
    arguments = [*PROGRAM, *command.format(place).split()]
    for lines in (0, 1):
        with subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
        ) as running:
            for _ in range(lines):
                running.stdout.readline()
            running.stdout.close()
            assert running.stderr.read() == ""
        assert running.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("command", ["inspect {}", "inspect {} --json", "plan --samples 9 --help"])
def test_what_cannot_be_written_is_told(place, command):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PROGRAM, *command.format(place).split()],
            stdout=full, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "prunedata: error: [Errno 28] No space left on device\n"
