"""Find the k-th highest of many scores without a copy of them."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["kth_highest"]

PART = 1 << 18
"""Scores in one pass: enough to spread the cost of a histogram."""
VALUES = 1 << 16
"""Number of values of a word of 16 bits."""
SIGN = 1 << 15
"""The smallest value with the highest bit set, which is the sign in the first word."""


def kth_highest(scores: npt.NDArray[Any], k: int, *, copy_up_to: int = 1 << 20) -> Any:
    """Return the ``k``-th highest score.

    Parameters
    ----------
    scores : ndarray, shape (samples,)
        Of an integer or floating dtype, without NaN.
    k : int
        From 1 to ``samples``.
    copy_up_to : int
        Up to this number scores are copied and partitioned. Of more scores, a histogram of the first 16 bits finds
        those of the k-th highest. The scores that begin with them are copied, or, if they are still too many, the next
        16 bits are found in the same way.
    """
    kind = scores.dtype
    little = kind == kind.newbyteorder("<")
    if scores.size <= copy_up_to or kind.itemsize not in (2, 4, 8) or not (little and scores.flags.c_contiguous):
        return _of_copy(scores, k)
    words = scores.view("<u2").reshape(scores.size, kind.itemsize // 2)[:, ::-1]
    prefix: list[int] = []
    for place in range(kind.itemsize // 2):
        count = np.zeros(VALUES, dtype=np.int64)
        for part, same in _beginning(words, prefix):
            count += np.bincount(words[part][same, place], minlength=VALUES)
        order = _descending(kind.kind, prefix)
        from_top = np.cumsum(count[order])
        steps = int(np.searchsorted(from_top, k))
        prefix.append(int(order[steps]))
        left = int(count[prefix[-1]])
        k -= int(from_top[steps]) - left
        if left <= copy_up_to:
            return _of_copy(np.concatenate([scores[part][same] for part, same in _beginning(words, prefix)]), k)
    return np.array(prefix[::-1], dtype="<u2").view(kind)[0]


def _of_copy(scores: npt.NDArray[Any], k: int) -> Any:
    place = scores.size - k
    return np.partition(scores, place)[place]


def _beginning(words: npt.NDArray[np.uint16], prefix: Sequence[int]) -> Iterator[tuple[slice, Any]]:
    """Yield parts of the scores, given as words of shape (samples, words), and where these begin with the prefix."""
    for first in range(0, len(words), PART):
        part = slice(first, first + PART)
        same: Any = slice(None)
        for place, word in enumerate(prefix):
            here = words[part, place] == word
            same = here & same if place else here
        yield part, same


def _descending(kind: str, prefix: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return all values of the word after a prefix, from that of the highest score to that of the lowest."""
    rising = np.arange(VALUES)
    low, high = rising[:SIGN], rising[SIGN:]
    if prefix:
        # The bits of a negative float fall as it rises.
        return rising if kind == "f" and prefix[0] >= SIGN else rising[::-1]
    if kind == "u":
        return rising[::-1]
    # Words with the sign's bit are below all others.
    return np.concatenate([low[::-1], high if kind == "f" else high[::-1]])
