"""Check values from callers and files, and put values into words.

A check returns a plain Python value, or raises what was expected and what came.
"""

from __future__ import annotations

import inspect
import math
import operator
import reprlib
import warnings
from collections.abc import Iterator
from fractions import Fraction
from typing import IO, SupportsFloat, SupportsIndex, cast

import numpy as np

from prunedata.errors import PrunedataError

LARGEST = 2**53  # above it a float, and so JSON, does not have every integer
LONGEST_LINE = 1 << 20


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


def count_top(top: int | float, samples: int) -> int:
    """Return how many of `samples` the `top` is: at least one, and at most all.

    `top` is a number from 1, or a fraction strictly between 0 and 1, as the decimal that was written; rounded down.
    Raises :class:`PrunedataError` if it is neither.
    """
    if isinstance(top, float) and 0 < top < 1:
        return max(1, int(samples * Fraction(str(top))))
    if isinstance(top, int) and not isinstance(top, bool) and top >= 1:
        return min(top, samples)
    raise PrunedataError(f"Expected top to be a number from 1, or a fraction between 0 and 1. Got {top}.")


def lines_of(file: IO[str], path: object) -> Iterator[str]:
    """Yield the lines of a file. Raises :class:`PrunedataError` for one of more than a million characters."""
    while line := file.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise PrunedataError(f"Expected lines of at most {LONGEST_LINE:,} characters in {path}. Got a longer one.")
        yield line


def percent(share: float) -> str:
    """Return a share from 0 to 1 as a percentage: 12.5 %, 100 %, 0.03 %. The space doesn't break."""
    value = 100 * share
    digits = 0 if not value or abs(value) >= 99.95 else 1 if abs(value) >= 0.95 else 2
    return f"{value:,.{digits}f}\N{NO-BREAK SPACE}%"


def duration(seconds: float) -> str:
    """Return seconds in units of time: 4.27 s, 20 min 51 s, 3 h 24 min, 2 d 5 h."""
    if abs(seconds) < 60:
        return f"{seconds:.3g} s"
    sign, left = "-" if seconds < 0 else "", round(abs(seconds))
    units = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
    large, name, small, rest = next(unit for unit in units if left >= unit[0])
    return f"{sign}{left // large} {name} {left % large // small} {rest}"
