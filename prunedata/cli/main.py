"""The program ``prunedata``: what it prints on an error, and its exit status."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from prunedata.checks import printable
from prunedata.cli.parser import parser
from prunedata.errors import PrunedataError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program on `argv`, by default the command line's; return its exit status, 2 on an error."""
    _prepare_output()
    try:
        try:
            args = parser().parse_args(argv)
        except SystemExit:  # after --help
            sys.stdout.flush()
            raise
        module, _, function = args.run.partition(".")
        status = getattr(import_module(f"prunedata.cli.{module}"), function)(args)
        sys.stdout.flush()
    except BrokenPipeError:
        _close_output()  # the reader, such as head, has left
        return 0
    except KeyboardInterrupt:
        _close_output()
        print("prunedata: stopped", file=sys.stderr)
        return 130  # the status of a program that Ctrl-C has ended
    except (PrunedataError, ImportError, OSError) as error:  # an ImportError names the package to install
        _close_output()
        print(f"prunedata: error: {printable(str(error))}", file=sys.stderr)
        return 2
    except MemoryError:
        print("prunedata: error: Expected data that fit into memory. Got more than this machine has.", file=sys.stderr)
        return 2
    return 0 if status is None else int(status)


def _prepare_output() -> None:
    """Write characters that a terminal cannot show as escapes; and let there be streams to write to."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # it was closed by the program that started this one
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (it stays open)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _close_output() -> None:
    """Drop what cannot be written: else Python tries again at exit, and complains."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
