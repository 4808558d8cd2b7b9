"""The k-th highest of many scores, without a copy of them."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["kth_highest"]

PART = 1 << 18
"""Scores looked at together: enough to spread the cost of a histogram."""
VALUES = 1 << 16
"""Of a word of 16 bits."""
SIGN = 1 << 15
"""The least of them with the bit that is the sign in the first word."""


def kth_highest(scores: npt.NDArray[Any], k: int, *, copy_up_to: int = 1 << 20) -> Any:
    """Return the ``k``-th highest score.

    Parameters
    ----------
    scores : ndarray, shape (samples,)
        Of an integer or floating dtype, without NaN.
    k : int
        From 1 to ``samples``.
    copy_up_to : int
        Up to so many are copied and partitioned. Of more, a histogram of their first 16 bits finds with which the score
        begins. Those that begin so are copied, or if they are still too many, the next 16 bits are found.
    """
    kind = scores.dtype
    little = kind == kind.newbyteorder("<")
    if scores.size <= copy_up_to or kind.itemsize not in (2, 4, 8) or not (little and scores.flags.c_contiguous):
        return _of_copy(scores, k)
    words = scores.view("<u2").reshape(scores.size, kind.itemsize // 2)[:, ::-1]
    found: list[int] = []
    for place in range(kind.itemsize // 2):
        count = np.zeros(VALUES, dtype=np.int64)
        for part, same in _beginning(words, found):
            count += np.bincount(words[part][same, place], minlength=VALUES)
        order = _descending(kind.kind, found)
        from_top = np.cumsum(count[order])
        steps = int(np.searchsorted(from_top, k))
        found.append(int(order[steps]))
        left = int(count[found[-1]])
        k -= int(from_top[steps]) - left
        if left <= copy_up_to:
            return _of_copy(np.concatenate([scores[part][same] for part, same in _beginning(words, found)]), k)
    return np.array(found[::-1], dtype="<u2").view(kind)[0]


def _of_copy(scores: npt.NDArray[Any], k: int) -> Any:
    place = scores.size - k
    return np.partition(scores, place)[place]


def _beginning(words: npt.NDArray[np.uint16], found: Sequence[int]) -> Iterator[tuple[slice, Any]]:
    """Yield parts of the scores, by their words of shape (samples, words), and where they begin with those found."""
    for first in range(0, len(words), PART):
        part = slice(first, first + PART)
        same: Any = slice(None)
        for place, word in enumerate(found):
            here = words[part, place] == word
            same = here & same if place else here
        yield part, same


def _descending(kind: str, before: Sequence[int]) -> npt.NDArray[np.int64]:
    """All values of a word from the highest score to the lowest, behind the words before it."""
    rising = np.arange(VALUES)
    low, high = rising[:SIGN], rising[SIGN:]
    if before:
        # Bits of a negative float fall as it rises.
        return rising if kind == "f" and before[0] >= SIGN else rising[::-1]
    if kind == "u":
        return rising[::-1]
    # With the sign's bit a word is below all others.
    return np.concatenate([low[::-1], high if kind == "f" else high[::-1]])
