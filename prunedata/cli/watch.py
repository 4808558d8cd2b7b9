"""The command ``prunedata watch``: run a program as Python would, and watch its trainings."""

import argparse
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from prunedata.errors import PrunedataError

FOLDER, OPTIONS = "PRUNEDATA_WATCH", "PRUNEDATA_WATCH_OPTIONS"
"""Variables: the folder of the stores, and words such as ``leave-out``, ``live`` and ``top=50``."""
STARTUP = Path(__file__).resolve().parent / "watching" / "startup"  # the folder to be named in PYTHONPATH


@dataclass(frozen=True)
class Settings:
    """How to watch: the folder of the stores, how many suspects are shown, whether samples are left out.

    With ``live`` suspects are shown at the end of every epoch.
    """

    folder: Path
    top: int = 20
    leave_out: bool = False
    live: bool = False

    @classmethod
    def from_environment(cls) -> Self:
        """Return the settings in this process's variables. Unknown words are ignored."""
        words = os.environ.get(OPTIONS, "").split()
        tops = [word.removeprefix("top=") for word in words if word.startswith("top=")]
        top = int(tops[-1]) if tops and tops[-1].isdecimal() else cls.top
        return cls(Path(os.environ.get(FOLDER) or "."), top, "leave-out" in words, "live" in words)

    def to_environment(self) -> dict[str, str]:
        """Return this process's variables, and those with which a program is watched with these settings."""
        words = [*["leave-out"] * self.leave_out, *["live"] * self.live, f"top={self.top}"]
        path = os.pathsep.join(filter(None, [str(STARTUP), os.environ.get("PYTHONPATH")]))
        return dict(os.environ) | {FOLDER: str(self.folder.absolute()), OPTIONS: " ".join(words), "PYTHONPATH": path}


def run(args: argparse.Namespace) -> None:
    """Run the program in the place of this process, watched."""
    if args.site:
        print(STARTUP)
        return
    if args.program is None:
        raise PrunedataError("Expected a script to run, as in prunedata watch train.py. Got none.")
    if args.top < 1:
        raise PrunedataError(f"Expected --top to be a number from 1. Got {args.top}.")
    command = _command(args.program, module=args.module)
    settings = Settings(Path(args.output), args.top, args.leave_out, args.live)
    sys.stdout.flush()
    # Python itself runs the program, in the place of this process: nothing of ours is left to differ from it.
    os.execve(command[0], [*command, *args.arguments], settings.to_environment())


def _command(program: str, *, module: bool) -> list[str]:
    """What to execute, its path first."""
    if module:
        return [sys.executable, "-m", program]
    found = None if program.endswith(".py") else shutil.which(program)
    if found is not None and os.path.dirname(program):  # .venv/bin/python or ./train.sh, which Python could not read
        return [found]
    if Path(program).is_file() or Path(program, "__main__.py").is_file():
        return [sys.executable, program]
    if found is None:
        raise PrunedataError(
            f"Expected a script, a program, or with -m a module. Got {program}, which is no file and no program."
        )
    return [found]
