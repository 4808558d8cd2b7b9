"""Turn ``top``, a number or a fraction, into a number of samples."""

from fractions import Fraction

from prunedata.errors import PrunedataError

__all__ = ["count_top"]


def count_top(top: int | float, samples: int) -> int:
    """Return how many of `samples` the `top` is: at least one, and at most all.

    Parameters
    ----------
    top : int or float
        A number from 1, or a fraction strictly between 0 and 1, as the decimal that was written; rounded down.
    samples : int
        How many there are, at least 1.

    Raises
    ------
    PrunedataError
        If `top` is neither.
    """
    if isinstance(top, float) and 0 < top < 1:
        return max(1, int(samples * Fraction(str(top))))
    if isinstance(top, int) and not isinstance(top, bool) and top >= 1:
        return min(top, samples)
    raise PrunedataError(f"Expected top to be a number from 1, or a fraction between 0 and 1. Got {top}.")
