"""The command ``prunedata report``: a page about a run."""

from __future__ import annotations

import argparse
import json
import webbrowser
from pathlib import Path
from typing import Any

from prunedata.cli.arguments import check_label_column, named_object, read_labels
from prunedata.cli.text import working


def add_report(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the program."""
    show = commands.add_parser("report", help="write a page about a run: its suspects, and what to do")
    show.set_defaults(run=_report)
    add = show.add_argument
    add("store", help="path of the run's store, such as run.zarr")
    add("-o", "--output", metavar="FILE", help="where to write (report.html, review.html)")
    add("--compare", metavar="STORE", help="store of another run, to show side by side")
    told = "the data set, or a function that returns it, also as SCRIPT.py:NAME, to show images or texts of suspects"
    add("--dataset", metavar="MODULE:NAME", help=told)
    told = "labels by id, to show the classes of suspects, in a format of suspects --labels"
    add("--labels", metavar="FILE", help=told)
    add("--label-column", metavar="NAME", help="column of the table (label)")
    add("--top", type=int, metavar="N", help="how many samples to list (12; with --review 500)")
    add("--review", action="store_true", help="write a page to judge suspects one by one, with the keyboard")
    add("--json", action="store_true", help="print the contents of the page as one JSON object")
    add("--open", action="store_true", help="open the page in the browser")


def _report(args: argparse.Namespace) -> None:
    from prunedata.reporting.report import report
    from prunedata.store.run_store import read_run

    check_label_column(args)
    labels = None
    if args.labels is not None:
        labels = read_labels(args.labels, read_run(args.store).state.samples, args.label_column)
    dataset = None if args.dataset is None else named_object(args.dataset)
    output = Path(args.output or ("review.html" if args.review else "report.html"))
    with working() as show:
        found = report(
            args.store,
            output,
            compare=args.compare,
            dataset=dataset,
            labels=labels,
            top=args.top,
            review=args.review,
            progress=show,
        )
    size = len(found.html.encode("utf-8"))
    if args.json:
        print(json.dumps({"output": str(output), "bytes": size, "runs": found.runs}))
    else:
        print(f"{size / 1000:,.0f} kB -> {output}")
    if args.open:
        webbrowser.open(output.resolve().as_uri())
