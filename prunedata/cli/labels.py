"""Labels from a file, one for each sample: as numpy wrote them, or as text."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.errors import PrunedataError

__all__ = ["read_labels"]

COLUMN = "label"
"""The column that is taken if none is named."""


def read_labels(path: str, samples: int, column: str | None = None) -> npt.NDArray[Any]:
    """Return the labels in a file, shape (samples,), in the order of the samples' ids: integers, or names.

    Parameters
    ----------
    path : str
        An ``.npy`` file; or text, with one label a line, or a table with commas whose first line names its columns.
    samples : int
        How many there must be.
    column : str, optional
        Of a table; ``label`` if not given.

    Raises
    ------
    PrunedataError
        If it holds anything else.
    """
    labels = _from_numpy(path) if Path(path).suffix == ".npy" else _from_text(path, samples, column)
    if labels.shape != (samples,) or labels.dtype.kind not in "iuU":
        raise PrunedataError(
            f"Expected labels of shape ({samples},), integers or text, in {path}. "
            f"Got shape {labels.shape}, {labels.dtype}."
        )
    return labels


def _from_numpy(path: str) -> npt.NDArray[Any]:
    try:
        labels = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise PrunedataError(f"Expected labels in {path}, as numpy.save writes them. Got {error}.") from error
    if not isinstance(labels, np.ndarray):
        raise PrunedataError(f"Expected labels in {path}, as numpy.save writes them. Got several arrays.")
    return labels


def _from_text(path: str, samples: int, column: str | None) -> npt.NDArray[Any]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise PrunedataError(f"Expected labels in {path}, as text with one a line. Got {error}.") from error
    head = [name.strip() for name in rows[0]] if rows else []
    if column is not None or COLUMN in head or len(head) > 1:
        found = _of_column(path, rows[1:], head, column or COLUMN)
    else:
        found = [row[0].strip() for row in rows]
    if len(found) != samples:
        raise PrunedataError(
            f"Expected {samples} labels in {path}, one for each sample. Got {len(found)}. "
            "If the first line names a column, say which with --label-column."
        )
    return _plain(found)


def _of_column(path: str, rows: list[list[str]], head: list[str], column: str) -> list[str]:
    if column not in head:
        raise PrunedataError(
            f"Expected a column {column} in the first line of {path}. Got {', '.join(head) or 'nothing'}: "
            "name the column with --label-column."
        )
    at = head.index(column)
    short = next((line for line, row in enumerate(rows, 2) if len(row) <= at), None)
    if short is not None:
        raise PrunedataError(f"Expected a column {column} in every row of {path}. Got none in row {short}.")
    return [row[at].strip() for row in rows]


def _plain(labels: list[str]) -> npt.NDArray[Any]:
    """As integers if all of them are."""
    try:
        return np.array([int(label) for label in labels], dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(labels, dtype=np.str_)
