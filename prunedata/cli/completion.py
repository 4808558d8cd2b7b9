"""The command ``prunedata completion``: print the completion script of a shell."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from prunedata.errors import PrunedataError

__all__ = ["add_completion"]

SHELLS = ("bash", "zsh", "tcsh")


def add_completion(commands: argparse._SubParsersAction[Any], program: argparse.ArgumentParser) -> None:
    """Add the command to the program."""
    shell = commands.add_parser("completion", help="print the script with which a shell completes commands and options")
    shell.set_defaults(run=lambda args: _completion(args.shell, program))
    shell.add_argument("shell", choices=SHELLS, help="your shell")


def _completion(shell: str, program: argparse.ArgumentParser) -> None:
    try:
        shtab = importlib.import_module("shtab")
    except ImportError:
        raise PrunedataError("Expected shtab, which writes completions. Got none: pip install shtab.") from None
    print(shtab.complete(program, shell=shell))
