"""The command ``prunedata apply``: correct labels by verdicts."""

import argparse
import codecs
import csv
import re
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.checks import shown
from prunedata.cli.arguments import is_one_file, labeled_rows, read_labels, replacing
from prunedata.errors import PrunedataError
from prunedata.findings.verdicts import apply_verdicts, read_verdicts, write_verdicts
from prunedata.types import Keys


def correct(args: argparse.Namespace) -> None:
    """Write the corrected labels, and the verdicts that name no other label."""
    if Path(args.output).suffix not in (".npy", ".csv", ".txt"):
        raise PrunedataError(f"Expected --output to end with .npy, .csv or .txt. Got {args.output}.")
    _refuse_overwriting(args)
    labels = read_labels(args.labels, None, args.label_column)
    _refuse_heading(args.labels, labels)
    found = read_verdicts(args.verdicts, keys=None if args.store is None else _keys_of(args.store, labels.size))
    if args.store is None and any(one.key for one in found):
        raise PrunedataError(
            f"Expected --store with {args.verdicts}, because its verdicts are on rows with keys. Got none, and the "
            "labels may be of other rows: name the store of a run with keys on these samples."
        )
    corrected, left = apply_verdicts(found, labels)
    changed = {at: str(corrected[at]) for at in range(labels.size) if corrected[at] != labels[at]}
    with replacing(args.output) as file:
        if file.suffix == ".npy" or Path(args.labels).suffix == ".npy":
            _write(corrected, file)
        else:
            _write_beside(args.labels, args.label_column, changed, file)
    if args.rest is not None:
        with replacing(args.rest) as file:
            write_verdicts(left, file, _line_end(args.verdicts))
    wrong = [one for one in found if one.verdict == "wrong"]
    print(f"{len(found):,} judged, {len(wrong):,} wrong: {len(wrong) - len(left):,} corrected -> {args.output}")
    if left:
        where = "add --rest FILE" if args.rest is None else f"-> {args.rest}"
        print(f"{len(left):,} wrong with no other class: {where}, and leave them out by Pruner(without=FILE)")


def _keys_of(store: str, samples: int) -> Keys:
    """Return the keys of the run that has these samples."""
    from prunedata.store.run_store import read_run  # zarr is imported for a store alone

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
            if output is not None and is_one_file(output, path):
                raise PrunedataError(
                    f"Expected {option} to be a new file. Got {output}, which holds {what}: name another file."
                )
        read |= {"the corrected labels": output}


def _refuse_heading(path: str, labels: npt.NDArray[Any]) -> None:
    """Raise if the first label may be the name of their column: then all labels would be those of the row before."""
    others = labels[1:]
    if Path(path).suffix == ".npy" or labels.dtype.kind != "U" or not labels.size or labels[0] in others:
        return
    with open(path, encoding="utf-8-sig") as file:
        first = file.readline().strip().strip('"')
    if first == labels[0] and np.unique(others).size < others.size:
        raise PrunedataError(
            f"Expected labels in {path}. Got {shown(first)} in its first line, and in no other. If it is the name of "
            "the column, pass it as --label-column; if it is a label, write the line label above it."
        )


def _write(labels: npt.NDArray[Any], output: Path) -> None:
    if output.suffix == ".npy":
        np.save(output, labels)
        return
    with open(output, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["label"])
        writer.writerows([label] for label in labels.tolist())


FIELD = re.compile(r'(?:^|,)("(?:[^"]|"")*"[^,]*|[^,]*)')


def _write_beside(path: str, column: str | None, changed: dict[int, str], output: Path) -> None:
    """Write a file of labels as it is, but for the labels of some samples."""
    with open(path, "rb") as raw:
        encoding = "utf-8-sig" if raw.read(3) == codecs.BOM_UTF8 else "utf-8"
    with open(path, encoding=encoding, newline="") as file, open(output, "w", encoding=encoding, newline="") as to:
        sample = 0
        for text, row, at in labeled_rows(file, path, column):
            written = text
            if at is not None:
                if sample in changed:
                    written = _with_label(text, row, at, changed[sample])
                sample += 1
            to.write(written)


def _with_label(text: str, row: list[str], at: int, label: str) -> str:
    """Return the text of a row with another label, quoted if the one before was, or if it has to be."""
    line = text.rstrip("\r\n")
    fields = [field.span(1) for field in FIELD.finditer(line)]
    if len(fields) != len(row):  # its quotes do not end
        return _line([*row[:at], label, *row[at + 1 :]]) + text[len(line) :]
    begin, end = fields[at]
    return text[:begin] + _line([label], quoted=line[begin:end].startswith('"')) + text[end:]


def _line(row: list[str], *, quoted: bool = False) -> str:
    written = StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL, lineterminator="")
    writer.writerow(row)
    return written.getvalue()


def _line_end(path: str) -> str:
    """Return what ends the first line of a file."""
    with open(path, encoding="utf-8", newline="") as file:
        first = file.readline()
    return first[len(first.rstrip("\r\n")) :] or "\n"
