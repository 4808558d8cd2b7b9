"""How far the losses of each sample lay above those of their batches, in the mean of its visits.

Suspects are ranked by it, and what is left out once a validation figure has turned. Of a label that is wrong the loss
stays above those of its batches, until the network has learnt it by heart: so a run whose figure turns adds nothing to
it from there on (docs/evidence/turn.md).
"""

import numpy as np

from prunedata.counting.batches import Batches
from prunedata.counting.counts import CHUNK
from prunedata.policies.rules import MEAN_EXCESS
from prunedata.types import Arrays, Counts, Recorded

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

    def __init__(self) -> None:
        self.is_on = True
        self._room: Recorded = np.empty(0, dtype=np.float32)

    def arrays(self, samples: int) -> Arrays:
        """The means before the first epoch. They are not kept here, where they would outlive it."""
        return {MEAN_EXCESS: np.zeros(samples, dtype=np.float32)}

    def begin(self, finished: Arrays) -> Arrays:
        """The sums of an epoch that begins."""
        return {MEAN_EXCESS: np.zeros_like(finished[MEAN_EXCESS])}

    def add(self, arrays: Arrays, batches: Batches, visits: Counts) -> None:
        """Add to an epoch's sums how far losses lie above the means of their batches, in place.

        One visit after the other, in float32.
        """
        if not self.is_on:
            return
        losses, sizes = batches.losses, batches.sizes
        if losses.size > self._room.size or losses.dtype != self._room.dtype:
            self._room = np.empty_like(losses)  # it is kept: new memory would cost as much as the sums
        room, means = self._room[: losses.size], batches.means.astype(losses.dtype)
        size, last = int(sizes[0]), len(sizes) - 1
        if (sizes[:last] == size).all():  # all batches but the last are of one size: as many rows
            cut = size * last
            np.subtract(losses[:cut].reshape(last, size), means[:last, np.newaxis], out=room[:cut].reshape(last, size))
            np.subtract(losses[cut:], means[last], out=room[cut:])
        else:
            np.subtract(losses, np.repeat(means, sizes), out=room)
        np.clip(room, -LARGEST, LARGEST, out=room)
        np.add.at(arrays[MEAN_EXCESS], batches.ids, room.astype(np.float32, copy=False))

    def end(self, finished: Arrays, arrays: Arrays, visits: Counts, visited: Counts) -> Arrays:
        """The means after an epoch, from those before it and its sums, which are overwritten.

        ``visits`` of the run so far, those of this epoch included, and ``visited`` in it, shape (samples,).
        """
        if not self.is_on:
            return {}
        mean, sums = finished[MEAN_EXCESS], arrays[MEAN_EXCESS]
        for first in range(0, mean.size, CHUNK):  # in place: between would be as much memory again
            part = slice(first, first + CHUNK)
            number = np.maximum(visits[part], 1).astype(np.float32)
            sums[part] = mean[part] + (sums[part] - visited[part].astype(np.float32) * mean[part]) / number
        return {MEAN_EXCESS: sums}
