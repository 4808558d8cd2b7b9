"""``make demo`` passes on what its user asks for."""

import os
import re
import shutil
import subprocess

import pytest

from benchmarks.demo.report import _remarks
from tests.common.programs import ROOT

RESULT = {"runs": {"regular": {"seconds": 1.0}}, "batch_seconds": 0.001, "picture": "p.png"}


def last_of(*words):
    """The last line that ``make`` would run, its words one space apart."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "-n", *words]  # as from a shell, also where make runs this test
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment)
    return " ".join(done.stdout.splitlines()[-1].split())


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
class TestMake:
    def test_the_command_of_the_hint_makes_labels_wrong(self):
        hint = re.search(r"`make (demo)`", "\n".join(_remarks(RESULT)))
        assert hint is not None
        assert last_of(hint[1]).endswith("-m benchmarks.demo")
        assert last_of("demo", "SAVING=1").endswith("-m benchmarks.demo --saving")

    def test_all_that_can_be_given_is_passed_on(self):
        last = last_of("demo", "FRAMEWORK=iterable", "DATA=a folder", "EPOCHS=3", "NOISE=0.2")
        assert last.endswith('-m benchmarks.demo --framework iterable --data "a folder" --epochs 3 --noise 0.2')

    def test_nothing_is_passed_on_that_was_not_given(self):
        assert last_of("demo").endswith("-m benchmarks.demo")
