"""The command ``prunedata apply``: correct labels by verdicts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prunedata.cli.arguments import read_labels
from prunedata.errors import PrunedataError

if TYPE_CHECKING:
    import numpy.typing as npt

    from prunedata.types import Keys

__all__ = ["add_apply"]


def add_apply(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the program."""
    fix = commands.add_parser("apply", help="correct labels by the verdicts from report --review")
    fix.set_defaults(run=_apply)
    add = fix.add_argument
    add("verdicts", help="the file that the page of report --review saved, such as verdicts.csv")
    add("--labels", required=True, metavar="FILE", help="the labels that were judged, in a format of suspects --labels")
    add("--label-column", metavar="NAME", help="column of the table (label)")
    add("--store", metavar="STORE", help="store of a run with keys on these samples, to match verdicts by key")
    add("-o", "--output", required=True, metavar="FILE", help="where to write: .npy, .csv or .txt")
    add("--rest", metavar="FILE", help="where to write the wrong samples without a new label, for Pruner(without=FILE)")


def _apply(args: argparse.Namespace) -> None:
    from prunedata.findings.verdicts import apply_verdicts, read_verdicts, write_verdicts

    if Path(args.output).suffix not in (".npy", ".csv", ".txt"):
        raise PrunedataError(f"Expected --output to end with .npy, .csv or .txt. Got {args.output}.")
    _refuse_overwriting(args)
    labels = read_labels(args.labels, None, args.label_column)
    found = read_verdicts(args.verdicts, labels.size, None if args.store is None else _keys_of(args.store, labels.size))
    if args.store is None and any(one.key for one in found):
        raise PrunedataError(
            f"Expected --store with {args.verdicts}, because its verdicts are on rows with keys. Got none, and the "
            "labels may be of other rows: name the store of a run with keys on these samples."
        )
    corrected, left = apply_verdicts(found, labels)
    _write(corrected, args.output)
    if args.rest is not None:
        write_verdicts(left, args.rest)
    wrong = [one for one in found if one.verdict == "wrong"]
    print(f"{len(found):,} judged, {len(wrong):,} wrong: {len(wrong) - len(left):,} corrected -> {args.output}")
    if left:
        where = "add --rest FILE" if args.rest is None else f"-> {args.rest}"
        print(f"{len(left):,} wrong with no other class: {where}, and leave them out by Pruner(without=FILE)")


def _keys_of(store: str, samples: int) -> Keys:
    """Return the keys of the run that has these samples."""
    from prunedata.store.run_store import read_run

    keys = read_run(store).state.keys
    if keys is None or keys.size != samples:
        got = "one without keys" if keys is None else f"one of {keys.size:,} samples"
        raise PrunedataError(f"Expected in {store} a run with keys on {samples:,} samples, as the labels. Got {got}.")
    return keys


def _refuse_overwriting(args: argparse.Namespace) -> None:
    """Raise if an output would overwrite an input, or the other output."""
    read = {"the labels": args.labels, "the verdicts": args.verdicts}
    for option, output in (("--output", args.output), ("--rest", args.rest)):
        for what, path in read.items():
            if output is not None and _is_one_file(output, path):
                raise PrunedataError(
                    f"Expected {option} to be a new file. Got {output}, which holds {what}: name another file."
                )
        read |= {"the corrected labels": output}


def _is_one_file(one: str, other: str) -> bool:
    # Of files that are there, which they are decides: a link, or another case, may name the same.
    return Path(one).resolve() == Path(other).resolve() or (
        Path(one).exists() and Path(other).exists() and Path(one).samefile(other)
    )


def _write(labels: npt.NDArray[Any], output: str) -> None:
    import numpy as np

    if Path(output).suffix == ".npy":
        np.save(output, labels)
        return
    import csv

    with open(output, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["label"])
        writer.writerows([label] for label in labels.tolist())
