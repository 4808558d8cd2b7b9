"""Check values from callers and files: return them as plain Python values, or raise what was expected and what came."""

from __future__ import annotations

import inspect
import math
import operator
import reprlib
import warnings
from typing import SupportsFloat, SupportsIndex, cast

import numpy as np

from prunedata.errors import PrunedataError

__all__ = ["LARGEST", "integer", "printable", "real", "shown", "warn"]

LARGEST = 2**53  # above it a float, and so JSON, does not have every integer


def integer(
    name: str, value: object, low: int, high: int = LARGEST, error: type[PrunedataError] = PrunedataError
) -> int:
    """Return `value` as a plain int from `low` to `high`; a bool, a float or text raises `error`."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        number = operator.index(cast(SupportsIndex, value))
    except TypeError:
        raise error(f"Expected {name} to be an integer. Got {shown(value)}.") from None
    if not low <= number <= high:
        bound = f"at least {low}" if high == LARGEST and number < low else f"from {low} to {high}"
        raise error(f"Expected {name} to be {bound}. Got {shown(number)}.")
    return number


def real(
    name: str, value: object, low: float, *, above: bool = False, error: type[PrunedataError] = PrunedataError
) -> float:
    """Return `value` as a finite float, at least `low`, or more than `low` where `above`; otherwise raise `error`."""
    try:
        number = math.nan if isinstance(value, bool | str) else float(cast(SupportsFloat, value))
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (low < number < math.inf if above else low <= number < math.inf):
        bound = f"above {low:g}" if above else f"of at least {low:g}"
        raise error(f"Expected {name} to be a finite number {bound}. Got {shown(value)}.")
    return number


def shown(value: object) -> str:
    """Return a value as text for a message: on one line, cut where it is long or deep, without control characters."""
    return _short.repr(value)


def printable(text: str) -> str:
    """Return `text` on one line, with all control characters as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        # Python raises for integers of more than 4,300 digits.
        return "a number of thousands of digits" if x.bit_length() > 1 << 13 else super().repr_int(x, level)


_short = _Short()
_short.maxlevel, _short.maxdict, _short.maxlist, _short.maxtuple = 4, 12, 12, 12
_short.maxstring = _short.maxother = _short.maxlong = 120


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user's code that called into the library."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "prunedata":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
