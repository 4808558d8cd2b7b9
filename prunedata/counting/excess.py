"""How far the losses of each sample lay above those of their batches, in the mean of its visits.

Suspects are ranked by it, and what is left out once a validation figure has turned. Of a label that is wrong the loss
stays above those of its batches, until the network has learnt it by heart: so a run whose figure turns adds nothing to
it from there on (docs/evidence/turn.md).
"""

import numpy as np

from prunedata.counting.batches import Batches
from prunedata.counting.counts import CHUNK
from prunedata.policies.rules import MEAN_EXCESS
from prunedata.types import Array, Arrays, Counts, Recorded

__all__ = ["SUMS", "Excess"]

LARGEST = 1e30
"""What a loss counts for at most: as many as an epoch may have of one sample add up within float32."""
SUMS = frozenset({MEAN_EXCESS})
"""Arrays that in an open epoch have sums of this epoch: over processes they add up where every visit counts."""


class Excess:
    """Watches the mean excess of each sample: float32, by the name ``mean_excess``.

    Attributes
    ----------
    is_on : bool
        Whether losses add to it; false from the turn of the validation figure on.
    """

    def __init__(self, samples: int) -> None:
        self.is_on = True
        self.initial: Arrays = {MEAN_EXCESS: np.zeros(samples, dtype=np.float32)}
        self._room: Recorded = np.empty(0, dtype=np.float32)

    def begin(self, finished: Arrays) -> Arrays:
        """The sums of an epoch that begins."""
        return {MEAN_EXCESS: np.zeros_like(finished[MEAN_EXCESS])}

    def add(self, arrays: Arrays, batches: Batches, visits: Counts) -> None:
        """Add batches to the sums of an open epoch, in place."""
        if not self.is_on:
            return
        losses = batches.losses
        if losses.size > self._room.size or losses.dtype != self._room.dtype:
            self._room = np.empty_like(losses)
        _add_excess(arrays[MEAN_EXCESS], batches, self._room[: losses.size])

    def end(self, finished: Arrays, arrays: Arrays, visits: Counts, visited: Counts) -> Arrays:
        """The means after an epoch, from those before it and its sums, which are overwritten."""
        if not self.is_on:
            return {}
        return {MEAN_EXCESS: _mean_after(finished[MEAN_EXCESS], arrays[MEAN_EXCESS], visits, visited)}


def _add_excess(sums: Array, batches: Batches, room: Recorded) -> None:
    """Add up how far losses lie above the means of their batches, in place: one visit after the other, in float32.

    ``room`` is for what is between, of the losses' shape and dtype: new memory for every buffer would cost as much as
    the sums.
    """
    losses, sizes, means = batches.losses, batches.sizes, batches.means.astype(room.dtype)
    size, last = int(sizes[0]), len(sizes) - 1
    if (sizes[:last] == size).all():  # all batches but the last are of one size: as many rows
        cut = size * last
        np.subtract(losses[:cut].reshape(last, size), means[:last, np.newaxis], out=room[:cut].reshape(last, size))
        np.subtract(losses[cut:], means[last], out=room[cut:])
    else:
        np.subtract(losses, np.repeat(means, sizes), out=room)
    np.clip(room, -LARGEST, LARGEST, out=room)
    np.add.at(sums, batches.ids, room.astype(np.float32, copy=False))


def _mean_after(mean: Array, sums: Array, visits: Counts, visited: Counts) -> Array:
    """The means after an epoch, float32, shape (samples,), in the place of the sums.

    Parameters
    ----------
    mean : ndarray of float32, shape (samples,)
        Before it.
    sums : ndarray of float32, shape (samples,)
        As :func:`_add_excess` made them in it.
    visits : ndarray of unsigned int, shape (samples,)
        Of the run so far, those of this epoch included.
    visited : ndarray of unsigned int, shape (samples,)
        In this epoch.
    """
    for first in range(0, mean.size, CHUNK):  # in place: between would be as much memory again
        part = slice(first, first + CHUNK)
        number = np.maximum(visits[part], 1).astype(np.float32)
        sums[part] = mean[part] + (sums[part] - visited[part].astype(np.float32) * mean[part]) / number
    return sums
