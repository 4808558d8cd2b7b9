"""The command ``prunedata report``: a run as a page to look at."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from importlib import import_module
from pathlib import Path
from typing import Any

from prunedata.cli.labels import read_labels
from prunedata.cli.text import bar, marks
from prunedata.errors import PrunedataError
from prunedata.reporting.report import report
from prunedata.store.reading import read_run

__all__ = ["add_report"]


def add_report(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the program."""
    show = commands.add_parser("report", help="a run as one page of HTML, with pictures")
    show.set_defaults(run=_report)
    add = show.add_argument
    add("store", help="path of the run's store, as run.zarr")
    add("-o", "--output", default="report.html", metavar="FILE", help="where to write (report.html)")
    add("--compare", metavar="STORE", help="another run, to be put beside it")
    add(
        "--dataset",
        metavar="MODULE:FUNCTION",
        help="what returns the data set, to show images or texts of the most suspect samples",
    )
    add("--labels", metavar="FILE", help="labels by id, to see in which classes suspects gather, as of suspects")
    add("--label-column", metavar="NAME", help="the column of the table (label)")
    add("--top", type=int, default=12, metavar="N", help="how many samples to list (12)")
    add("--open", action="store_true", help="open it in the browser")


def _report(args: argparse.Namespace) -> None:
    if args.label_column is not None and args.labels is None:
        raise PrunedataError("Expected --labels beside --label-column. Got none.")
    labels = None
    if args.labels is not None:
        labels = read_labels(args.labels, read_run(args.store).state.samples, args.label_column)
    dataset = None if args.dataset is None else _load(args.dataset)
    output = Path(args.output)
    try:
        found = report(
            args.store, output, compare=args.compare, dataset=dataset, labels=labels, top=args.top, progress=_progress
        )
    finally:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)  # what is printed next stands in its place
    print(f"{len(found.html.encode('utf-8')) / 1000:,.0f} kB -> {args.output}")
    if args.open:
        webbrowser.open(output.resolve().as_uri())


def _load(name: str) -> Any:
    """The data set that a function returns, by its name as ``module:function``; the current folder comes first."""
    module, _, function = name.partition(":")
    if not module or not function:
        raise PrunedataError(f"Expected --dataset as module:function, such as data:train_set. Got {name}.")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(import_module(module), function)
        return found() if callable(found) else found
    except Exception as error:
        raise PrunedataError(f"Expected {name} to return the data set. Got {type(error).__name__}: {error}.") from error


def _progress(share: float, what: str) -> None:
    """Show on a terminal how much is done."""
    if sys.stderr.isatty():
        two = marks(sys.stderr.encoding)
        print(f"\r\x1b[K{bar(share, two, 30):{two[0]}<30} {what}", end="", file=sys.stderr, flush=True)
