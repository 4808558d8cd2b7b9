"""The program ``prunedata``: its commands, their help, and its exit status.

A command imports what it needs when it runs: help needs no zarr, which takes longer to import than all the rest.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from prunedata import __version__
from prunedata.checks import printable
from prunedata.cli.apply import add_apply
from prunedata.cli.arguments import add_top
from prunedata.cli.doctor import add_doctor
from prunedata.cli.plan import add_plan
from prunedata.cli.report import add_report
from prunedata.cli.runs import add_runs
from prunedata.cli.summary import summary
from prunedata.cli.text import marks, working
from prunedata.cli.top import add_top_command
from prunedata.cli.watch import add_watch
from prunedata.errors import PrunedataError

STATUSES = (
    "Exit status: 0 on success; 1 if doctor found something wrong; 2 on an error, with one line about it on "
    "standard error; 130 after Ctrl-C."
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # argparse would print the usage and its own words; main has one form for every error.
        raise PrunedataError(f"{message} (see '{self.prog} --help')")


def parser() -> argparse.ArgumentParser:
    """The program's arguments."""
    program = _Parser(
        prog="prunedata",
        description="Find wrong labels in your training set while you train, and leave them out.",
        epilog=STATUSES,
    )
    program.add_argument("--version", action="version", version=f"prunedata {__version__}")
    commands = program.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_watch(commands)
    add_top_command(commands)
    add_plan(commands)
    look = commands.add_parser("inspect", help="print the contents of a run's store, and the samples pruned most")
    look.set_defaults(run=_inspect)
    look.add_argument("store", help="path of the run's store, such as run.zarr")
    add_top(look, 10, "how many of the samples pruned most to list")
    look.add_argument("--json", action="store_true", help="print one JSON object")
    scan = commands.add_parser("index", help="index the samples of WebDataset shards, by their headers")
    scan.set_defaults(run=_index)
    scan.add_argument("shards", nargs="+", metavar="SHARDS", help="paths or URLs; {000..099} is expanded")
    scan.add_argument("--output", default="index.json", metavar="FILE", help="where to write (index.json)")
    scan.add_argument("--json", action="store_true", help="print one JSON object")
    add_runs(commands)
    add_report(commands)
    add_apply(commands)
    add_doctor(commands)
    shell = commands.add_parser("completion", help="print a script by which a shell completes commands and options")
    shell.set_defaults(run=lambda args: _completion(args.shell, program))
    shell.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="your shell")
    return program


def _inspect(args: argparse.Namespace) -> None:
    from prunedata.findings.inspection import inspect

    found = inspect(args.store, top=args.top)
    print(json.dumps(found) if args.json else "\n".join(summary(found, marks(sys.stdout.encoding))))


def _index(args: argparse.Namespace) -> None:
    from prunedata.streams.shards import ShardIndex, expand

    shards = [url for shards in args.shards for url in expand(shards)]
    output = Path(args.output)
    if output.is_dir() or not output.parent.is_dir():  # reading all shards may take hours
        raise PrunedataError(f"Expected --output to be a file in a folder that exists. Got {args.output}.")
    with working() as show:
        index = ShardIndex.scan(shards, progress=lambda urls: _counted(urls, show))
    index.save(args.output)
    if args.json:
        print(json.dumps({"shards": len(index.shards), "samples": len(index), "output": args.output}))
    else:
        print(f"{len(index):,} samples in {len(index.shards):,} shards -> {args.output}")


def _counted(shards: Iterable[str], show: Callable[[float, str], None]) -> Iterator[str]:
    """Yield the shards, and show how many are done."""
    shards = list(shards)
    for done, shard in enumerate(shards):
        show(done / len(shards), f"{done:,} of {len(shards):,} shards")
        yield shard


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program on `argv`, by default the command line's; return its exit status, 2 on an error."""
    _prepare_output()
    try:
        try:
            args = parser().parse_args(argv)
        except SystemExit:  # after --help
            sys.stdout.flush()
            raise
        status = args.run(args)
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


def _completion(shell: str, program: argparse.ArgumentParser) -> None:
    try:
        shtab = importlib.import_module("shtab")
    except ImportError:
        raise PrunedataError("Expected shtab, which writes completions. Got none: pip install shtab.") from None
    print(shtab.complete(program, shell=shell))
