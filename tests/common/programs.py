"""Programs of the repository, run in a process of their own as a user runs them; and marks that many tests share."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

__all__ = ["FEWER", "ROOT", "WORKERS", "run_module", "run_python"]

ROOT = Path(__file__).resolve().parents[2]


def run_module(
    name: str, *arguments: str, cwd: Path, options: tuple[str, ...] = ()
) -> "subprocess.CompletedProcess[str]":
    """Run ``python -m name`` in `cwd`, with `options` of the interpreter, and return what came of it."""
    return _run([*options, "-m", name, *arguments], cwd)


def run_python(code: str, *, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Run `code` in an interpreter of its own in `cwd`."""
    return _run(["-c", code], cwd)


def _run(arguments: list[str], cwd: Path) -> "subprocess.CompletedProcess[str]":
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *arguments],
        check=False,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": search},
        capture_output=True,
        text=True,
        timeout=240,
    )


WORKERS = pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
"""Without workers, and slow with two of them: for rules that a loader with workers keeps as one without.

Where workers do something of their own, as with streams, seeds and positions, quick tests have them too.
"""
FEWER = settings(max_examples=max(1, settings.default.max_examples // 3))
"""A third of the examples: for properties of runs and files, each example of which takes long."""
