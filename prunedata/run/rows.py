"""Find the rows of the user's own data set that the samples of a training come from."""

from collections.abc import Iterator
from functools import wraps
from inspect import signature
from typing import Any

import numpy as np

from prunedata.types import Ids

_MADE: dict[int, tuple[Any, Ids, int]] = {}
"""By the address of memory, which a data set and all selections of it share: that part of a column, the rows that the
whole was made from, and where the part begins."""


def original_rows(dataset: Any) -> Ids | None:
    """Return the row of each sample in the data set that the user selected from, shape (samples,).

    None if nothing was selected: by PyTorch's ``Subset``, or by ``select``, ``shuffle``, ``filter`` and
    ``train_test_split`` of Hugging Face's.
    """
    selected = selected_by(dataset)
    if selected is not None:
        before = original_rows(dataset.dataset)
    else:
        before = _rows_made_from(dataset)
        if getattr(dataset, "_indices", None) is not None and hasattr(dataset, "column_names"):
            selected = dataset._indices.column(0).to_numpy().astype(np.int64, copy=False)
    if selected is None:
        return before
    return selected if before is None else before[selected]


def selected_by(dataset: Any) -> Ids | None:
    """Return a copy of the places that a ``Subset`` of PyTorch's has, shape (samples,); None of any other data set.

    One of the user's may have other ``indices``, such as where its windows begin.
    """
    indices, whole = getattr(dataset, "indices", None), getattr(dataset, "dataset", None)
    if indices is None or not hasattr(whole, "__getitem__"):
        return None
    try:
        places = np.asarray(indices)
    except Exception:  # whatever is called so
        return None
    are_places = places.shape == (len(dataset),) and (places.dtype.kind in "iu" or not places.size)
    return places.astype(np.int64) if are_places else None


def _parts(table: Any) -> Iterator[tuple[int, Any]]:
    """Yield the address of each part of a table's columns, and the part."""
    for column in getattr(getattr(table, "table", None), "columns", ()):
        for part in column.chunks:
            address = next((memory.address for memory in part.buffers() if memory is not None and memory.size), None)
            if address is not None and len(part):
                yield address, part


def _rows_made_from(dataset: Any) -> Ids | None:
    """Return the rows from which a table was made, that was noted, is a range of one, or has a part several times.

    None of others: their rows are their own.
    """
    table: Any = getattr(dataset, "_data", None) if hasattr(dataset, "column_names") else None  # Hugging Face's only
    found: list[Ids] = []
    own, firsts, at = np.arange(0 if table is None else len(table)), dict[Any, Any](), 0
    sources = set()
    for address, part in _parts(table):
        if at == own.size:
            break  # that was the first column
        # Selections of one data set that were concatenated have all of its table, each once more.
        part_of_own = firsts.setdefault((address, part.offset, len(part)), (part, own, at - part.offset))
        _, rows, first = _MADE.get(address, part_of_own)
        sources.add(id(rows))
        found.append(rows[first + part.offset :][: len(part)])
        at += len(part)
    if len(sources) != 1 or (sources == {id(own)} and len(firsts) == len(found)):
        return None
    return np.concatenate(found).astype(np.int64, copy=False)


def _note(table: Any, rows: Ids) -> None:
    """Remember from which rows a table was made."""
    first = 0
    for address, part in _parts(table):
        _MADE[address] = part, rows, first - part.offset
        first = (first + len(part)) % len(rows)


def carry_rows(kind: Any) -> None:
    """Let :func:`original_rows` know what ``map`` of Hugging Face's ``Dataset`` writes after a selection, and ranges.

    A batched function may return other rows than it was given. It doesn't where a column stays: as many values as
    before go with it.
    """
    own_map, own_range = kind.map, getattr(kind, "_select_contiguous", None)

    @wraps(own_map)
    def carrying(self: Any, *args: Any, **options: Any) -> Any:
        result = own_map(self, *args, **options)
        given = signature(own_map).bind(self, *args, **options).arguments
        removed = given.get("remove_columns") or ()
        stays = set(self.column_names) - {removed} if isinstance(removed, str) else set(self.column_names) - {*removed}
        alike = not given.get("batched") or stays & set(result.column_names)
        rows = original_rows(self)
        if rows is not None and alike and len(result) == len(self) and result is not self:
            _note(result.data, rows)
        return result

    kind.map = carrying
    if own_range is not None:

        @wraps(own_range)
        def select_contiguous(self: Any, *args: Any, **options: Any) -> Any:
            if self._indices is None and original_rows(self) is None:
                _note(self.data, np.arange(len(self)))
            return own_range(self, *args, **options)

        kind._select_contiguous = select_contiguous
