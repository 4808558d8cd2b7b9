"""Select the samples that an epoch trains on, by their scores: KeepList as a mask (Algorithm 2, line 7).

The highest scores are pruned, exactly as many as requested. Equal scores are ordered by a hash of (sample, seed,
epoch): ordered by index, ties would drop the same samples in every epoch.

Histograms find the cut-off score; one pass hashes the samples that have it. Everything works in chunks, so that beside
the mask itself a billion samples need a few megabytes.
"""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.errors import PrunedataError

CHUNK = 1 << 16
_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_OFFSETS = np.arange(1, CHUNK + 1, dtype=np.uint64) * np.uint64(_GOLDEN)


def keep_mask(counts: npt.ArrayLike, num_pruned: int, *, seed: int, epoch: int) -> npt.NDArray[np.bool_]:
    """Select the samples that an epoch trains on: all but the ``num_pruned`` with the highest counts.

    Parameters
    ----------
    counts : array, shape (samples,)
        DroppingCount of each sample, or any other score, of an integer or floating dtype. Higher is pruned first.
    num_pruned : int
        PruningNum, from 0 to ``samples``. Exactly this number of samples is pruned.
    seed, epoch : int
        Together with the sample's index they decide between equal counts: fairly over seeds, differently in every
        epoch, and reproducibly.

    Returns
    -------
    ndarray of bool, shape (samples,)
        True where the sample is kept.

    Raises
    ------
    PrunedataError
        If ``counts`` is not one-dimensional, not numeric or has a NaN, or ``num_pruned`` is out of range.
    """
    scores = _checked_scores(counts)
    pruned = index(num_pruned)
    if not 0 <= pruned <= scores.size:
        raise PrunedataError(f"Expected num_pruned from 0 to the number of samples, {scores.size}. Got {pruned}.")
    if pruned in (0, scores.size):
        return np.full(scores.size, pruned == 0)
    threshold, above, ties = _threshold(scores, pruned)
    keep = np.empty(scores.size, dtype=np.bool_)
    stream = _mix_int(_mix_int(index(seed)) + index(epoch) * _GOLDEN)  # where its splitmix64 sequence starts
    _prune_ties(keep, scores, threshold, pruned - above, ties, stream)
    return keep


def draw_holdout(samples: int, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Draw a share of the samples, rounded up, by the seed alone. Return a mask of shape (samples,)."""
    return ~keep_mask(np.zeros(samples, np.uint8), count_holdout(samples, share), seed=seed, epoch=-1)


def count_holdout(samples: int, share: float) -> int:
    """Return the number of samples that :func:`draw_holdout` draws."""
    return min(samples - 1, math.ceil(samples * Fraction(str(share))))


def _checked_scores(counts: npt.ArrayLike) -> npt.NDArray[Any]:
    scores = np.asarray(counts)
    if scores.ndim != 1 or scores.dtype.kind not in "buif":
        raise PrunedataError(
            f"Expected scores of shape (samples,) and a numeric dtype. Got shape {scores.shape}, dtype {scores.dtype}."
        )
    if scores.dtype.kind == "f" and any(np.isnan(scores[part]).any() for part in _chunks(scores.size)):
        raise PrunedataError(
            f"Expected scores without NaN. Got {int(np.isnan(scores).sum())} NaN: "
            "give unobserved samples a number, too, such as -np.inf to prune them last."
        )
    return scores


def _chunks(samples: int) -> Iterator[slice]:
    for first in range(0, samples, CHUNK):
        yield slice(first, min(first + CHUNK, samples))


def _threshold(scores: npt.NDArray[Any], pruned: int) -> tuple[Any, int, int]:
    """Return the ``pruned``-th highest score, and how many samples are above it and at it."""
    if scores.dtype in (np.bool_, np.uint8, np.uint16):
        histogram = np.zeros(1 << (8 * scores.dtype.itemsize), dtype=np.int64)
        for part in _chunks(scores.size):
            some = np.bincount(scores[part])
            histogram[: some.size] += some
        from_top = np.cumsum(histogram[::-1])
        steps = int(np.searchsorted(from_top, pruned))
        ties = int(histogram[-1 - steps])
        return scores.dtype.type(histogram.size - 1 - steps), int(from_top[steps]) - ties, ties
    threshold = kth_highest(scores, pruned)
    above = sum(int(np.count_nonzero(scores[part] > threshold)) for part in _chunks(scores.size))
    return threshold, above, sum(int(np.count_nonzero(scores[part] == threshold)) for part in _chunks(scores.size))


def _prune_ties(
    keep: npt.NDArray[np.bool_], scores: npt.NDArray[Any], threshold: Any, need: int, ties: int, stream: int
) -> None:
    """Fill ``keep``: False above the threshold and, of the ``ties`` samples at it, for the ``need`` of lowest hash.

    Hashes are uniform, so the ``need``-th lowest is almost surely in a narrow band around ``need / ties``. Samples
    below the band are pruned without sorting, and only those in it are sorted. If the cut-off is outside the band, all
    are sorted.
    """
    margin = 16 + 8 * int((need * (ties - need) / ties) ** 0.5)
    for low, high in ((max(0, need - margin), min(ties, need + margin)), (0, ties)):
        first, last = np.uint64((low << 64) // ties), np.uint64((high << 64) // ties - 1)
        hashes, within, below = [], [], 0
        for part in _chunks(scores.size):
            kept = np.less_equal(scores[part], threshold, out=keep[part])
            tied = np.flatnonzero(scores[part] == threshold)
            mixed = _hashes(part.start, tied, stream)
            kept[tied] = mixed > last
            band = np.flatnonzero((mixed >= first) & (mixed <= last))
            below += int(np.count_nonzero(mixed < first))
            hashes.append(mixed[band])
            within.append(tied[band] + part.start)
        candidates, ranks = np.concatenate(within), np.concatenate(hashes)
        missing = need - below
        if 0 <= missing <= candidates.size:
            if missing < candidates.size:
                keep[candidates[np.argpartition(ranks, missing)[missing:]]] = True
            return


def _mix_int(value: int) -> int:
    value &= _WORD
    for shift, factor in _MIX:
        value = ((value ^ (value >> shift)) * factor) & _WORD
    return value ^ (value >> 31)


def _hashes(first: int, offsets: npt.NDArray[np.intp], stream: int) -> npt.NDArray[np.uint64]:
    """Return splitmix64 of the samples ``first + offsets``. It is a bijection: no two samples have the same hash."""
    base = np.uint64((stream + first * _GOLDEN) & _WORD)
    value = (_OFFSETS if offsets.size == CHUNK else _OFFSETS[offsets]) + base
    scratch = np.empty_like(value)
    for shift, factor in _MIX:
        np.right_shift(value, np.uint64(shift), out=scratch)
        np.bitwise_xor(value, scratch, out=value)
        np.multiply(value, np.uint64(factor), out=value)
    np.right_shift(value, np.uint64(31), out=scratch)
    np.bitwise_xor(value, scratch, out=value)
    return value


PART = 1 << 18  # scores in one pass: enough to spread the cost of a histogram
VALUES = 1 << 16  # number of values of a word of 16 bits
SIGN = 1 << 15  # the smallest value with the highest bit set, which is the sign in the first word


def kth_highest(scores: npt.NDArray[Any], k: int, *, copy_up_to: int = 1 << 20) -> Any:
    """Return the ``k``-th highest score, from the first: shape (samples,), an integer or floating dtype, without NaN.

    Up to ``copy_up_to`` scores are copied and partitioned. Of more scores, a histogram of the first 16 bits finds those
    of the k-th highest. The scores that begin with them are copied, or, if they are still too many, the next 16 bits
    are found in the same way.
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
