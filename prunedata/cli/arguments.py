"""What arguments of commands name: objects of a script or a module, labels in a file, and files to write."""

import argparse
import csv
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from prunedata.checks import lines_of, shown
from prunedata.errors import PrunedataError


def named_object(named: str) -> Any:
    """Return the named object of a script or a module; a function without arguments is called.

    A script is run, but isn't ``__main__``. Modules are looked for in the current folder first.
    """
    place, _, name = named.rpartition(":")
    if not place or not name:
        raise PrunedataError(f"Expected a name such as module:train_set or script.py:train_set. Got {named}.")
    if place.endswith(".py") and not Path(place).is_file():
        raise PrunedataError(f"Expected a script that makes {name}. Got {place}, which does not exist.")
    try:
        found = getattr(_script(place) if place.endswith(".py") else _module(place), name)
        return found() if inspect.isroutine(found) else found
    except AttributeError as error:
        raise PrunedataError(f"Expected {name!r} in {place}. Got {error}.") from error
    except (Exception, SystemExit) as error:
        told = str(error).removesuffix(".")
        raise PrunedataError(
            f"Expected {place} to run, and to make {name} without training. Got {type(error).__name__}: {told}."
        ) from error


def _module(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    return importlib.import_module(name)


def _script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise PrunedataError(f"Expected a script of Python. Got {path}.")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(Path(path).resolve().parent))
    sys.modules[spec.name] = module  # worker processes look for the classes of its data there
    spec.loader.exec_module(module)
    return module


@contextmanager
def replacing(path: str) -> Iterator[Path]:
    """Yield a file to write, which takes the place of the file at `path` if all of it was written.

    Raises :class:`PrunedataError` if it cannot be written: then the file at `path` is as it was.
    """
    target = Path(path)
    try:
        # What is no file, as /dev/stdout, cannot be replaced, nor what is in a folder that cannot be written.
        if target.exists() and not (target.is_file() and os.access(target.resolve().parent, os.W_OK)):
            yield target
            return
        part = target.resolve().with_name(f".{os.getpid()}.{target.name}")  # a link stays one; the ending counts
        try:
            yield part
            part.replace(target.resolve())
        finally:
            part.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        why = error.strerror or error
        raise PrunedataError(
            f"Expected to write {path}. Got {why}: name a file that can be written, or make room."
        ) from error


def is_one_file(one: str, other: str) -> bool:
    """Whether two paths name one file. Of files that are there, which they are decides: one may be a link."""
    return Path(one).resolve() == Path(other).resolve() or (
        Path(one).exists() and Path(other).exists() and Path(one).samefile(other)
    )


def check_label_column(args: argparse.Namespace) -> None:
    """Raise :class:`PrunedataError` for ``--label-column`` without ``--labels``."""
    if args.label_column is not None and args.labels is None:
        raise PrunedataError("Expected --labels with --label-column. Got none.")


COLUMN = "label"  # the default column
LONGEST_NAME = 256  # characters of a label, which takes four bytes a character for each sample


def read_labels(path: str, samples: int | None, column: str | None = None) -> npt.NDArray[Any]:
    """Return the labels in a file, shape (samples,), in the order of the samples' ids: integers, or names.

    The file is an ``.npy`` file; or text, with one label a line, or a table with commas whose first line names its
    columns. ``samples`` is how many there must be; None takes as many as there are. Raises :class:`PrunedataError` if
    it holds anything else, or a name of more than 256 characters.
    """
    labels = _from_numpy(path) if Path(path).suffix == ".npy" else _from_text(path, samples, column)
    long = labels.dtype.kind == "U" and labels.dtype.itemsize > 4 * LONGEST_NAME
    wanted = labels.size if samples is None else samples
    if labels.shape != (wanted,) or labels.dtype.kind not in "iuU" or long:
        raise PrunedataError(
            f"Expected labels of shape ({wanted},), integers or text of up to {LONGEST_NAME} characters, in {path}. "
            f"Got shape {labels.shape}, {shown(labels.dtype)}."
        )
    return np.array(labels)


def _from_numpy(path: str) -> npt.NDArray[Any]:
    try:
        # Mapped, so that nothing is read or made before shape and dtype are known to be right.
        with np.errstate(all="ignore"):
            labels = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # numpy raises what its parsers of headers raise
        raise PrunedataError(f"Expected labels in {path}, as numpy.save writes them. Got {shown(error)}.") from error
    if not isinstance(labels, np.ndarray):
        labels.close()
        raise PrunedataError(f"Expected labels in {path}, as numpy.save writes them. Got several arrays.")
    return labels.view(np.uint8) if labels.dtype == np.bool_ else labels  # the classes 0 and 1, as for the Pruner


def _from_text(path: str, samples: int | None, column: str | None) -> npt.NDArray[Any]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            found = (row[at].strip() for _, row, at in labeled_rows(file, path, column) if at is not None)
            labels = list(islice(found, samples))
            more = sum(1 for _ in found)
    except (UnicodeDecodeError, csv.Error) as error:
        raise PrunedataError(
            f"Expected labels in {path}, as text with one a line, in UTF-8. Got {shown(error)}."
        ) from error
    if samples is not None and len(labels) + more != samples:
        raise PrunedataError(
            f"Expected {samples} labels in {path}, one per sample. Got {len(labels) + more}. "
            "If the first line has column names, choose one with --label-column."
        )
    return _plain(labels, path)


def labeled_rows(file: IO[str], path: str, column: str | None) -> Iterator[tuple[str, list[str], int | None]]:
    """Yield the text of each row of a file of labels, with its line end, its fields, and the place of its label.

    The place is None for the names of columns, and for an empty row.
    """
    read: list[str] = []

    def lines() -> Iterator[str]:
        for line in lines_of(file, path):
            read.append(line)
            yield line

    at, number = None, 0
    for row in csv.reader(lines()):
        text, place = "".join(read), None
        read.clear()
        number += bool(row)
        if number == 1 and row:
            at = _place_of_labels(row, path, column)
        if row and (number > 1 or at is None):
            if at is None and len(row) > 1:
                raise PrunedataError(
                    f"Expected one label a line in {path}. Got {len(row)} fields with commas between them in row "
                    f"{number}: put a label with a comma in double quotes, or name the columns in the first line."
                )
            place = at or 0
            if len(row) <= place:
                told = f"Expected a column {column or COLUMN} in every row of {path}. Got none in row {number}."
                raise PrunedataError(told)
        yield text, row, place
    if not number:
        _place_of_labels([], path, column)


def _place_of_labels(first: list[str], path: str, column: str | None) -> int | None:
    """Return the place of the column with the labels, by the first row of a file; None if that has a label itself."""
    head = [name.strip() for name in first]
    if column is None and COLUMN not in head and len(head) < 2:
        return None
    if (column or COLUMN) in head:
        return head.index(column or COLUMN)
    raise PrunedataError(
        f"Expected a column {column or COLUMN} in the first line of {path}. Got {', '.join(head)[:200] or 'nothing'}: "
        "name the column with --label-column. Columns are separated by commas."
    )


def _plain(labels: list[str], path: str) -> npt.NDArray[Any]:
    """Return labels as integers if all of them are."""
    try:
        return np.array([int(label) for label in labels], dtype=np.int64)
    except (ValueError, OverflowError):
        long = max(labels, key=len)
        if len(long) > LONGEST_NAME:
            raise PrunedataError(
                f"Expected labels of at most {LONGEST_NAME} characters in {path}. Got one of {len(long):,}."
            ) from None
        return np.array(labels, dtype=np.str_)
