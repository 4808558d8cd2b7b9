"""The command ``prunedata top``, once into a pipe, and again and again in a terminal."""

import os
import pty
import subprocess
import sys

import numpy as np
import pytest

from prunedata import Pruner
from tests.common.programs import ROOT, run_module


def train(folder, epochs):
    pruner = Pruner(50, epochs=3, leave_out="nothing", store=folder / "run.zarr", resume=True)
    for _ in range(epochs):
        pruner.begin_epoch()
        pruner.observe(np.where(np.arange(50) == 7, 9.0, 1.0), np.arange(50))
        pruner.end_epoch()


def test_into_a_pipe_it_prints_once(tmp_path):
    train(tmp_path, 1)
    done = run_module("prunedata", "top", "run.zarr", "--top", "2", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert lines[0] == "run.zarr: 1 of 3 epochs are done."
    assert lines[1].startswith("epoch 0: mean loss 1.16")
    assert lines[2].split() == ["row", "excess", "label"]
    assert lines[3].split() == ["7", "7.84"]
    assert len(lines) == 5


def test_in_a_terminal_it_goes_on_until_the_run_is_finished(tmp_path):
    train(tmp_path, 1)
    ours, theirs = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-m", "prunedata", "top", "run.zarr", "--every", "0.1"], cwd=tmp_path,
                          stdout=theirs, env=environment) as program:  # fmt: skip
        os.close(theirs)
        seen = b""
        while seen.count(b"1 of 3 epochs") < 2:
            seen += os.read(ours, 4096)
        train(tmp_path, 2)
        while b"Finished: 3 of 3" not in seen:
            seen += os.read(ours, 4096)
    os.close(ours)
    assert program.returncode == 0
    assert seen.startswith(b"\x1b[H\x1b[2J")


@pytest.mark.parametrize("option", [("--every", "0"), ("--top", "0")])
def test_what_makes_no_sense_is_refused(option, tmp_path):
    done = run_module("prunedata", "top", "run.zarr", *option, cwd=tmp_path)
    assert done.returncode == 2
    assert "above 0" in done.stderr
