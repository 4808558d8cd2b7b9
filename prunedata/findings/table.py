"""The most suspect samples of a run as a table, and files of it for tools that clean data."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.checks import count_top
from prunedata.errors import PrunedataError
from prunedata.findings.inspection import times_pruned
from prunedata.findings.searched import searched_visits
from prunedata.findings.suspects import most_suspect, scores_of, suspicion
from prunedata.findings.verdicts import KEY, Verdict, valid_text, write_verdicts
from prunedata.keys import key_text
from prunedata.store.run_store import StoreLike, read_run
from prunedata.store.state import DTYPES, LOST, OPEN, RunState
from prunedata.types import Array, Arrays, Ids

__all__ = ["WRITERS", "issue_table", "key_column", "rows_of", "suspect_table", "table_of"]


ISSUE = "training_dynamics"
"""The name of the issue type in cleanlab's Datalab."""
ISSUE_SCORE = 0.1
"""The score up to which a sample counts as an issue."""
PART = 10_000


def suspect_table(location: StoreLike, *, top: int | float = 100, labels: npt.ArrayLike | None = None) -> Arrays:
    """Return the most suspect samples of a run as a table, the worst first.

    Parameters
    ----------
    location : path, URL or zarr store
        Where the run is kept. It may be running.
    top : int or float
        How many samples, or what fraction of them. Samples that were never observed are left out.
    labels : array of int or str, shape (samples,), optional
        The labels that it was trained on, by id; by default those of the run.

    Returns
    -------
    dict of ndarray, shape (n,)
        Columns by name: ``id``; ``hits``, ``visits`` and, in a run with ``classes``, ``high``, of the whole run;
        ``score``, by which they are ordered, see :func:`prunedata.findings.suspects.scores_of`; ``pruned``: the
        finished epochs that left it out; the arrays of the policy; ``label``, if known; with logits ``guess``, the
        network's guess for the class: -1, or "" for names, if it is unknown or the label itself; and in a run with keys
        ``key``, the hash, 16 hexadecimal digits.

    Raises
    ------
    PrunedataError
        If no run is there, nothing was observed, or `top` makes no sense.
    """
    return table_of(read_run(location).state, top, None if labels is None else np.asarray(labels))


def table_of(run: RunState, top: int | float, labels: Array | None = None, names: Sequence[str] = ()) -> Arrays:
    """Return the same table for a run that was read; ``names`` are those of the classes 0, 1, ..."""
    top = count_top(top, run.samples)
    if not run.arrays or not (visits := searched_visits(run)).any():
        raise PrunedataError(f"Expected samples that were observed. Got none in {len(run.history)} epochs.")
    suspicious = scores_of(run)
    ids = most_suspect(suspicious, visits, top)
    counted = {"hits": run.hits} | ({} if run.high is None else {"high": run.high}) | {"visits": run.visits}
    pruned = times_pruned(run)
    arrays = sorted(run.arrays.items())
    others = {name: array for name, array in arrays if name not in DTYPES and not name.startswith((LOST, OPEN))}
    columns = counted | {"score": suspicious, "pruned": pruned} | others | _labels_and_guesses(run, labels, names)
    return {"id": ids} | {name: array[ids] for name, array in columns.items()} | key_column(run, ids)


def key_column(run: RunState, ids: Ids) -> Arrays:
    """Return the column ``key`` of some samples, 16 hexadecimal digits each; empty for a run without keys."""
    if run.keys is None:
        return {}
    return {KEY: np.array([key_text(key) for key in run.keys[ids].tolist()], dtype="U16")}


def issue_table(run: RunState) -> Arrays:
    """Return the columns of an issue type of cleanlab's Datalab, shape (samples,), in the order of the ids.

    ``training_dynamics_score``, from 0, the worst, to 1: ``1 / (1 + exp(mean_excess))``; NaN for samples that were
    never observed, held out, or left out for good. ``is_training_dynamics_issue``: the losses lay 2.2 or more above
    the means of their batches, a score of 0.1.
    """
    excess = np.asarray(run.mean_excess, dtype=np.float64)
    good = 1 / (1 + np.exp(np.clip(excess, -700, 700)))
    good = np.where(suspicion(excess, searched_visits(run)) < 0, np.nan, good)
    return {f"is_{ISSUE}_issue": good <= ISSUE_SCORE + 1e-9, f"{ISSUE}_score": good}


def rows_of(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a dict of plain values for each sample; None for NaN."""
    return [dict(zip(table, row, strict=True)) for row in _values_of(table)]


def _values_of(table: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the plain values of each sample; in parts, as those of millions of samples take gigabytes."""
    for at in range(0, len(table["id"]), PART):
        columns = (array[at : at + PART].tolist() for array in table.values())
        known = ([None if isinstance(v, float) and isnan(v) else v for v in column] for column in columns)
        yield from zip(*known, strict=True)


def _write(path: Path, lines: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def _to_ids(table: Arrays, path: Path) -> None:
    _write(path, map(str, table["id"]))


def _to_verdicts(table: Arrays, path: Path) -> None:
    keys = table.get(KEY, np.full(table["id"].size, ""))
    rows = ["" if row < 0 else str(row) for row in table.get("row", np.full(table["id"].size, -1)).tolist()]
    wrong = zip(table["id"].tolist(), rows, keys.tolist(), strict=True)
    write_verdicts([Verdict(sample, "wrong", row=row, key=key) for sample, row, key in wrong], path)


def _to_csv(table: Arrays, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table)
        writer.writerows(_values_of(table))


def _to_jsonl(table: Arrays, path: Path) -> None:
    _write(path, (json.dumps(dict(zip(table, row, strict=True))) for row in _values_of(table)))


WRITERS: dict[str, Callable[[Arrays, Path], None]] = {
    "ids": _to_ids,
    "csv": _to_csv,
    "jsonl": _to_jsonl,
    "verdicts": _to_verdicts,
}
"""Functions that write a table into a file, by format. Formats that need more than numpy are adapters."""


def _labels_and_guesses(run: RunState, labels: Array | None, names: Sequence[str]) -> Arrays:
    """Return the columns ``label`` and ``guess``, shape (samples,), as far as they are known.

    ``names`` are those of classes 0, 1, ...; without names, numbers stay numbers. A guess is -1, or "" for names, if it
    is unknown or the label itself.
    """
    given = _readable(run.labels if labels is None else np.asarray(labels))
    numbers = given is not None and given.dtype.kind in "iu" and 0 <= given.min() <= given.max() < len(names)
    if names and (given is None or numbers):
        classes = np.array(_readable(np.array(names, dtype=np.str_)))
        given = None if given is None else classes[given]
    elif given is not None and given.dtype.kind == "U":
        known = run.run.get("labels", {}).get("classes", ()) if labels is None else _in_order(given, run.labels)
        classes = np.array(_readable(np.array(known, dtype=np.str_)))
    else:
        classes = None
    found = {} if given is None else {"label": given}
    guess = run.guess
    if guess is None:
        return found
    told, none = guess.astype(np.int64), "" if classes is not None else -1
    if classes is not None:
        told = np.append(classes, "")[np.where((guess >= 0) & (guess < classes.size), guess, classes.size)]
    return found | {"guess": told if given is None else np.where(told == given, none, told)}


def _in_order(names: Array, trained_on: Array | None) -> Array:
    """Return the names of classes 0, 1, ...: each class has the name that most of its samples have.

    ``names`` of all samples, and the labels that the run was trained on, both of shape (samples,). If these are no
    numbers, the names are sorted, as a run with names takes them.
    """
    found, which = np.unique(names, return_inverse=True)
    if trained_on is None or trained_on.dtype.kind not in "iu" or not (trained_on >= 0).any():
        return found
    known = trained_on >= 0
    pairs, counts = np.unique(trained_on[known].astype(np.int64) * found.size + which[known], return_counts=True)
    numbers, which = np.divmod(pairs[np.argsort(counts, kind="stable")], found.size)  # the most frequent comes last
    classes = np.full(numbers.max() + 1, "", dtype=found.dtype)
    classes[numbers] = found[which]
    return classes


def _readable(labels: Array | None) -> Array | None:
    """Return labels as valid UTF-8: half a surrogate pair is replaced."""
    if labels is None or labels.dtype.kind != "U":
        return labels
    names, which = np.unique(labels, return_inverse=True)
    return np.asarray(np.array([valid_text(name) for name in names.tolist()], dtype=np.str_)[which])
