"""The commands that read runs, ``prunedata suspects``, ``compare`` and ``advise``, and the files that they write."""

from __future__ import annotations

import argparse
import importlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prunedata.checks import printable
from prunedata.cli.arguments import add_top, read_labels
from prunedata.cli.text import table, working
from prunedata.errors import PrunedataError
from prunedata.run.frameworks import ADAPTERS

if TYPE_CHECKING:
    from prunedata.findings.advice import Advice
    from prunedata.findings.compare import Comparison
    from prunedata.findings.suspects import ClassShare
    from prunedata.store.state import RunState
    from prunedata.types import Arrays

__all__ = ["add_runs"]

LINES = 10
"""Suspects that are printed if all of them go into a file."""
LONGEST_NAME = 40
"""Characters of a label."""


def add_runs(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the commands to the program."""
    told = "list the samples of a run, or of several folds, whose labels are most likely wrong"
    look = commands.add_parser("suspects", help=told)
    look.set_defaults(run=_suspects)
    told = "path of a run's store; several are joined into one list"
    look.add_argument("stores", nargs="+", metavar="STORE", help=told)
    add_top(look, 100, "how many samples")
    told = "labels by id, to show the classes of the suspects: .npy, text with one per line, or a CSV table"
    look.add_argument("--labels", metavar="FILE", help=told)
    look.add_argument("--label-column", metavar="NAME", help="column of the table (label)")
    look.add_argument("-o", "--out", metavar="FILE", help="write the samples into a file")
    told = (
        "format: ids, csv, jsonl, parquet, verdicts for Pruner(without=FILE), or cleanlab for every sample's score; "
        "by default the ending of FILE, or ids"
    )
    look.add_argument("--to", metavar="FORM", help=told)
    look.add_argument("--json", action="store_true", help="print one JSON object")
    two = commands.add_parser("compare", help="compare the suspects of two runs on the same data")
    two.set_defaults(run=_compare)
    two.add_argument("stores", nargs=2, metavar="STORE", help="paths of the runs' stores")
    add_top(two, 0.1, "number of samples of each run to compare")
    two.add_argument("--json", action="store_true", help="print one JSON object")
    ask = commands.add_parser("advise", help="print how many labels of a run look wrong, and what to leave out")
    ask.set_defaults(run=_advise)
    ask.add_argument("store", help="path of the run's store")
    ask.add_argument("--json", action="store_true", help="print one JSON object")


def _suspects(args: argparse.Namespace) -> None:
    from prunedata.findings.searched import num_held_out, num_without, searched
    from prunedata.findings.suspects import concentration
    from prunedata.findings.table import rows_of, table_of
    from prunedata.reporting.kept import KeptPreviews
    from prunedata.store.run_store import read_run

    if args.label_column is not None and args.labels is None:
        raise PrunedataError("Expected --labels with --label-column. Got none.")
    _check_export(args)
    if len(args.stores) > 1:
        _joined_suspects(args)
        return
    with working(f"reading {args.stores[0]}"):
        run = read_run(args.stores[0]).state
        labels = None if args.labels is None else read_labels(args.labels, run.samples, args.label_column)
        kept = KeptPreviews(args.stores[0])
        columns = kept.labeled(run, args.top) if labels is None else table_of(run, args.top, labels)
        rows = rows_of(columns)
    shares = None if labels is None else concentration(labels, columns["id"], searched(run))
    written = None if args.out is None else _export(args, columns, run)
    if args.json:
        about = {"samples": run.samples, "held_out": num_held_out(run), "without": num_without(run)}
        found = {**about, "epochs": len(run.history), "suspects": rows}
        print(json.dumps(found if shares is None else found | {"classes": [asdict(share) for share in shares]}))
        return
    print("\n".join(_suspects_lines(run, rows if written is None else rows[:LINES])))
    if written is not None and len(rows) > LINES:
        print(f"... and {len(rows) - LINES:,} more in {args.out}")
    if shares is not None:
        print("\n".join(_classes_lines(shares)))
    if written is not None:
        print(f"\n{written:,} samples -> {args.out}")


def _joined_suspects(args: argparse.Namespace) -> None:
    from prunedata.findings.compare import joined_table
    from prunedata.findings.table import rows_of
    from prunedata.store.run_store import read_run

    if args.labels is not None:
        raise PrunedataError("Expected --labels with the store of one run. Got several stores.")
    _check_once(args.stores)
    with working(f"reading {len(args.stores)} runs"):
        columns = joined_table([read_run(store).state for store in args.stores], args.top)
        rows = rows_of(columns)
    written = None if args.out is None else _export(args, columns)
    if args.json:
        print(json.dumps({"stores": args.stores, "suspects": rows}))
        return
    few = rows if written is None else rows[:LINES]
    head = ["sample", "of", "runs", "visits", "score"]
    shown = [
        [f"{row['id']:,}", args.stores[row["run"]], f"{row['runs']:,}", f"{row['visits']:,}", f"{row['score']:.3f}"]
        for row in few
    ]
    print("\n".join([f"most suspect in {len(args.stores)} runs", *table([head, *shown], left=(1,))]))
    if written is not None:
        print(f"\n{written:,} samples -> {args.out}")


def _check_once(stores: list[str]) -> None:
    """Raise :class:`PrunedataError` if two stores are one, which may be named by several paths or by a link."""
    named: dict[str, str] = {}
    for store in stores:
        path = store.removeprefix("file://")
        place = path.rstrip("/") if "://" in path else str(Path(path).resolve())
        if place in named:
            raise PrunedataError(
                f"Expected stores of different runs. Got one of them twice, as {printable(named[place])} and "
                f"{printable(store)}: name it once, as its losses would count twice."
            )
        named[place] = store


def _suspects_lines(run: RunState, rows: list[dict[str, Any]]) -> list[str]:
    from prunedata.findings.searched import told_unsearched

    counted = [name for name in ("row", "hits", "high", "visits") if name in rows[0]]
    told = {name: head for name, head in (("label", "labeled"), ("guess", "looks like")) if name in rows[0]}
    head = ["sample", *counted, "score", *told.values()]
    shown = [
        [
            *(f"{row[name]:,}" for name in ("id", *counted)),
            f"{row['score']:.3f}",
            *("-" if row[name] in (-1, "") else str(row[name])[:LONGEST_NAME] for name in told),
        ]
        for row in rows
    ]
    rest, done = told_unsearched(run), len(run.history)
    return [
        f"most suspect of {run.samples:,} samples after {done:,} epoch{'s'[: done != 1]}",
        *([] if rest is None else [rest]),
        *table([head, *shown], left=()),
    ]


def _classes_lines(shares: list[ClassShare]) -> list[str]:
    rows = [
        [
            str(one.label),
            f"{one.suspects:,}",
            f"{one.samples:,}",
            f"{one.share:.1%}",
            f"{one.expected:.1%}",
            "-" if one.lift is None else f"{one.lift:.2f}",
        ]
        for one in shares
    ]
    head = ("class", "suspects", "samples", "of suspects", "of samples", "lift")
    names = (0,) if any(isinstance(one.label, str) for one in shares) else ()
    return ["", "where they gather", *table([head, *rows], left=names)]


def _compare(args: argparse.Namespace) -> None:
    from prunedata.findings.compare import compare, shared_rows
    from prunedata.findings.searched import searched_visits
    from prunedata.store.run_store import read_run

    first, second = (read_run(store).state for store in args.stores)
    if not (first.arrays and second.arrays):
        raise PrunedataError("Expected samples that were visited in both runs. Got none.")
    places = shared_rows((first, second)).places
    both = places[:, (places >= 0).all(axis=0)]
    if not both.size:
        raise PrunedataError("Expected rows that are in both runs, by their keys. Got none.")
    one, other = (
        (run.mean_excess[ids], searched_visits(run)[ids]) for run, ids in zip((first, second), both, strict=True)
    )
    found = compare(one, other, args.top)
    print(json.dumps(found.to_dict()) if args.json else "\n".join(_compare_lines(found)))


def _compare_lines(found: Comparison) -> list[str]:
    correlation = found.rank_correlation
    rows = [
        ("samples compared", f"{found.compared:,}", f"of {found.samples:,}"),
        ("most suspect in each", f"{found.top:,}", ""),
        ("overlap (Jaccard)", f"{found.jaccard:.3f}", f"by chance {found.jaccard_by_chance:.3f}"),
        (
            "rank correlation (Spearman)",
            "-" if correlation is None else f"{correlation:.3f}",
            "all scores of a run are equal" if correlation is None else "by chance 0",
        ),
    ]
    return table(rows, left=(0, 2))


def _advise(args: argparse.Namespace) -> None:
    from prunedata.findings.inspection import advise_now, outcome
    from prunedata.findings.searched import num_searched
    from prunedata.plan.schedule import Schedule
    from prunedata.store.run_store import read_run

    run = read_run(args.store).state
    found, schedule = advise_now(run), Schedule.from_dict(run.schedule)
    finished = len(run.history) >= schedule.epochs
    followed = finished and run.advice is not None and run.run.get("leave_out") != "nothing"
    if args.json:
        print(json.dumps(found.to_dict()))
    else:
        print("\n".join([outcome(run, found), "", *_advice_lines(found, num_searched(run), finished, followed)]))


def _advice_lines(found: Advice, samples: int, finished: bool, followed: bool) -> list[str]:
    watch = "look at the suspects" if finished else "watch on"
    rows = [("advice", watch if found.verdict == "watch" else found.verdict)]
    if finished and found.verdict != "watch":
        next_run = ("for", "the next run on these data: this one is finished")
        rows.append(("followed", "by this run, which is finished") if followed else next_run)
    if found.onset is not None:
        rows += [("memorization seen", f"in epoch {found.onset}"), ("lost since", f"{found.lost:.3g}")]
    if found.schedule is not None:
        rows += [
            ("policy", repr(found.policy)),
            ("leave out", f"{found.prune:,} of {samples:,} samples"),
            ("when", f"every epoch from {found.schedule.start} to {found.schedule.epochs - 1}"),
            ("sample visits saved", f"{found.saving_percent:.2f} %"),
        ]
    if found.shorter is not None:
        rows.append(("or train shorter", f"{found.shorter} epochs, without pruning"))
    return [*table(rows, left=(0, 1)), "", "because", *(f"  {printable(sentence)}" for sentence in found.evidence)]


def _check_export(args: argparse.Namespace) -> None:
    """Raise if the format is unknown or has no file; set the format by the name of the file if none is given."""
    if args.out is None:
        if args.to is not None:
            raise PrunedataError(f"Expected --out FILE with --to {args.to}. Got none.")
        return
    if args.to is None:
        from prunedata.findings.table import WRITERS

        ending = Path(args.out).suffix.lstrip(".")
        args.to = ending if ending in WRITERS or ending == "parquet" else "ids"
    if args.to != "cleanlab":
        _writer(args.to)


def _export(args: argparse.Namespace, suspects: Arrays, run: RunState | None = None) -> int:
    """Write suspects into a file, and return how many samples it has.

    Without a `run` they are of several: then verdicts are on rows by key, as ids differ between runs.
    """
    from prunedata.findings.table import issue_table, key_column

    to, written = args.to, suspects
    if to == "cleanlab" and run is None:
        raise PrunedataError("Expected one run for --to cleanlab. Got several stores.")
    if to == "cleanlab" and run is not None:
        ids = np.arange(run.samples)
        to, written = "csv", {"id": ids} | issue_table(run) | key_column(run, ids)
    if to == "ids" and run is None and suspects["run"].any():
        raise PrunedataError(
            "Expected --to verdicts, csv, jsonl or parquet, as some rows are not in the first run. Got --to ids."
        )
    if to == "verdicts" and run is None and "key" in suspects:
        written = {"id": np.full(suspects["id"].size, ""), "key": suspects["key"]}
    with working(f"writing {args.out}"):
        _writer(to)(written, Path(args.out))
    return int(written["id"].size)


def _writer(to: str) -> Any:
    """Return the function that writes a table in this format; for one that the core can't write, its adapter's."""
    from prunedata.findings.table import WRITERS

    if to in WRITERS:
        return WRITERS[to]
    found: Any = None
    if to.isidentifier():
        try:
            found = importlib.import_module(f"{ADAPTERS}.{to}")
        except ModuleNotFoundError as error:
            if error.name not in (ADAPTERS, f"{ADAPTERS}.{to}"):
                raise PrunedataError(str(error)) from error
        except ImportError as error:  # it names the missing package
            raise PrunedataError(str(error)) from error
    if not hasattr(found, "write_table"):
        raise PrunedataError(f"Expected --to {', '.join(WRITERS)}, cleanlab or parquet. Got {to}.")
    return found.write_table
