"""Programs of the repository, run as a user runs them: in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["ROOT", "run_module", "run_python"]

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
