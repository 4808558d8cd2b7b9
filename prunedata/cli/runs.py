"""The commands that read runs, ``prunedata suspects``, ``compare`` and ``advise``, and the files that they write."""

import argparse
import importlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from prunedata.checks import printable
from prunedata.cli.arguments import check_label_column, is_one_file, read_labels, replacing
from prunedata.cli.text import listing, table, working
from prunedata.errors import PrunedataError
from prunedata.findings.advice import Advice
from prunedata.findings.compare import Comparison, compare_runs, joined_table
from prunedata.findings.inspection import advise_now, outcome
from prunedata.findings.searched import num_searched, num_unsearched, searched, told_unsearched
from prunedata.findings.suspects import concentration
from prunedata.findings.table import WRITERS, issue_table, key_column, rows_of, table_of
from prunedata.plan.schedule import Schedule
from prunedata.reporting.kept import KeptPreviews
from prunedata.run.frameworks import ADAPTERS
from prunedata.store.location import local_folder
from prunedata.store.run_store import read_run
from prunedata.store.state import RunState
from prunedata.types import Arrays

LINES = 10
"""Suspects that are printed if all of them go into a file."""
LONGEST_NAME = 40
"""Characters of a label."""
CLASSES_SHOWN = 20
SUSPECTS = {
    "id": ("sample", ","), **{name: (name, ",") for name in ("row", "hits", "high", "visits")},
    "score": ("score", ".3f"), "label": ("labeled", ""), "guess": ("looks like", ""),
}  # fmt: skip
JOINED = {
    "id": SUSPECTS["id"], "run": ("of", ""), "runs": ("runs", ","), "visits": SUSPECTS["visits"],
    "score": SUSPECTS["score"],
}  # fmt: skip
CLASSES = {
    "label": ("class", ""), "suspects": ("suspects", ","), "samples": ("samples", ","),
    "share": ("of suspects", ".1%"), "expected": ("of samples", ".1%"), "lift": ("lift", ".2f"),
}  # fmt: skip
"""Columns of tables: head and format by name."""


def suspects(args: argparse.Namespace) -> None:
    """Print the most suspect samples of a run, or of several, and write them into a file."""
    check_label_column(args)
    _check_export(args)
    if len(args.stores) == 1:
        found, columns, run = _of_one(args)
    else:
        found, columns, run = *_of_several(args), None
    written = None if args.out is None else _export(args, columns, run)
    if args.json:
        print(json.dumps(found | {"suspects": rows_of(columns)}))
        return
    few = rows_of({name: column[: None if written is None else LINES] for name, column in columns.items()})
    print("\n".join(_joined_lines(args.stores, few) if run is None else _suspects_lines(run, few)))
    if columns["id"].size > len(few):
        print(f"... and {columns['id'].size - len(few):,} more in {args.out}")
    if "classes" in found:
        print("\n".join(_classes_lines(found["classes"])))
    if written is not None:
        print(f"\n{written:,} samples -> {args.out}")


def _of_one(args: argparse.Namespace) -> tuple[dict[str, Any], Arrays, RunState]:
    """Return the suspects of one run as plain values and as a table, and the run."""
    place = args.stores[0]
    with working(f"reading {place}"):
        run = read_run(place).state
        labels = None if args.labels is None else read_labels(args.labels, run.samples, args.label_column)
        kept = KeptPreviews(place)
        columns = kept.labeled(run, args.top) if labels is None else table_of(run, args.top, labels)
    apart = num_unsearched(run)
    found: dict[str, Any] = {"samples": run.samples, "held_out": apart["held_out"], "without": apart["without"]}
    found["epochs"] = len(run.history)
    if labels is not None:
        found["classes"] = [asdict(one) for one in concentration(labels, columns["id"], searched(run))]
    return found, columns, run


def _of_several(args: argparse.Namespace) -> tuple[dict[str, Any], Arrays]:
    """Return the suspects of several runs, as one list, as plain values and as a table."""
    if args.labels is not None:
        raise PrunedataError("Expected --labels with the store of one run. Got several stores.")
    _check_once(args.stores)
    with working(f"reading {len(args.stores)} runs"):
        columns = joined_table([read_run(store).state for store in args.stores], args.top)
    return {"stores": args.stores}, columns


def _check_once(stores: list[str]) -> None:
    """Raise :class:`PrunedataError` if two stores are one, which may be named by several paths or by a link."""
    named: dict[str, str] = {}
    for store in stores:
        folder = local_folder(store)
        place = store.rstrip("/") if folder is None else str(folder.resolve())
        if place in named:
            raise PrunedataError(
                f"Expected stores of different runs. Got one of them twice, as {printable(named[place])} and "
                f"{printable(store)}: name it once, as its losses would count twice."
            )
        named[place] = store


def _joined_lines(stores: list[str], rows: list[dict[str, Any]]) -> list[str]:
    named = [row | {"run": stores[row["run"]]} for row in rows]
    return [f"most suspect in {len(stores)} runs", *listing(named, JOINED, left=(1,))]


def _suspects_lines(run: RunState, rows: list[dict[str, Any]]) -> list[str]:
    columns = {name: column for name, column in SUSPECTS.items() if name in rows[0]}
    unknown = {"label": ("",), "guess": (-1, "")}  # -1 may be a label
    named = columns.keys() & unknown
    shown = [row | {name: None if row[name] in unknown[name] else _name(row[name]) for name in named} for row in rows]
    rest, done = told_unsearched(run), len(run.history)
    return [
        f"most suspect of {run.samples:,} samples after {done:,} epoch{'s'[: done != 1]}",
        *([] if rest is None else [rest]),
        *listing(shown, columns),
    ]


def _name(label: int | str) -> str:
    text = str(label)
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 3]}..."


def _classes_lines(classes: list[dict[str, Any]]) -> list[str]:
    few = [one | {"label": _name(one["label"])} for one in classes[:CLASSES_SHOWN]]
    names = (0,) if any(isinstance(one["label"], str) for one in classes) else ()
    more = len(classes) - len(few)
    rest = [f"... and {more:,} more classes, which --json has"] if more else []
    return ["", "where they gather", *listing(few, CLASSES, left=names), *rest]


def compare(args: argparse.Namespace) -> None:
    """Print how far two runs suspect the same samples."""
    first, second = (read_run(store).state for store in args.stores)
    found = compare_runs(first, second, args.top)
    print(json.dumps(asdict(found)) if args.json else "\n".join(_compare_lines(found)))


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


def advise(args: argparse.Namespace) -> None:
    """Print the advice on a run."""
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
    if args.labels is not None and is_one_file(args.out, args.labels):
        raise PrunedataError(f"Expected --out to be a new file. Got {args.out}, which holds the labels: name another.")
    if args.to is None:
        ending = Path(args.out).suffix.lstrip(".")
        args.to = ending if ending in WRITERS or ending == "parquet" else "ids"
    if args.to != "cleanlab":
        _writer(args.to)


def _export(args: argparse.Namespace, suspects: Arrays, run: RunState | None = None) -> int:
    """Write suspects into a file, and return how many samples it has.

    Without a `run` they are of several: then verdicts are on rows by key, as ids differ between runs.
    """
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
    with working(f"writing {args.out}"), replacing(args.out) as file:
        _writer(to)(written, file)
    return int(written["id"].size)


def _writer(to: str) -> Any:
    """Return the function that writes a table in this format."""
    if to in WRITERS:
        return WRITERS[to]
    if to != "parquet":
        raise PrunedataError(f"Expected --to {', '.join(WRITERS)}, cleanlab or parquet. Got {to}.")
    return importlib.import_module(f"{ADAPTERS}.parquet").write_table
