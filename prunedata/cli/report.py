"""The command ``prunedata report``: a page about a run."""

import argparse
import json
import webbrowser
from pathlib import Path

from prunedata.cli.arguments import check_label_column, named_object, read_labels, replacing
from prunedata.cli.text import working
from prunedata.reporting.report import report
from prunedata.store.run_store import read_run


def write(args: argparse.Namespace) -> None:
    """Write the page, and print its place or its contents."""
    check_label_column(args)
    labels = None
    if args.labels is not None:
        labels = read_labels(args.labels, read_run(args.store).state.samples, args.label_column)
    dataset = None if args.dataset is None else named_object(args.dataset)
    output = Path(args.output or ("review.html" if args.review else "report.html"))
    with working() as show:
        found = report(
            args.store,
            compare=args.compare,
            dataset=dataset,
            labels=labels,
            top=args.top,
            review=args.review,
            progress=show,
        )
    with replacing(str(output)) as file:
        found.save(file)
    size = len(found.html.encode("utf-8"))
    if args.json:
        print(json.dumps({"output": str(output), "bytes": size, "runs": found.runs}))
    else:
        print(f"{size / 1000:,.0f} kB -> {output}")
    if args.open:
        webbrowser.open(output.resolve().as_uri())
