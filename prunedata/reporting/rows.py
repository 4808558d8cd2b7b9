"""A plain row as names with values: of a table, or of an array of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["as_row"]

MOST_VALUES = 64
"""Of a row, that are shown."""
MOST_CHARACTERS = 4_000
"""Of a value."""


def as_row(values: Sequence[Any], names: Sequence[Any] = ()) -> tuple[tuple[str, str], ...]:
    """Return the names and values of a row, or () if nothing of it is text or a number.

    Parameters
    ----------
    values : sequence
        Of one sample: one array of shape (features,), or texts and numbers, beside which anything else is left out.
    names : sequence, optional
        Of the values, or of the features; without them they are counted from 0.
    """
    if len(values) == 1 and not isinstance(values[0], str | bytes):
        try:
            array = np.asarray(values[0])
        except Exception:  # of somebody's own type
            return ()
        if array.ndim == 1 and array.dtype.kind in "biufUO":
            values, names = array.tolist(), names if len(names) == array.size else ()
        elif not names:
            return ()
    named = names if len(names) == len(values) else [str(at) for at in range(len(values))]
    row = ((str(name), _cell(value)) for name, value in zip(named, values, strict=True))
    return tuple((name, cell) for name, cell in row if cell is not None)[:MOST_VALUES]


def _cell(value: Any) -> str | None:
    if isinstance(value, str):
        return value[:MOST_CHARACTERS]
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    if value is None or isinstance(value, bool | int | np.integer | np.bool_):
        return str(value)
    array = np.asarray(value) if hasattr(value, "shape") else None
    return None if array is None or array.size != 1 or array.dtype.kind not in "biuf" else _cell(array.item())
