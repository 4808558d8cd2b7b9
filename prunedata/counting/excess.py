"""The mean excess of each sample: how far its losses were above the means of their batches, on average.

It ranks suspects. The loss of a wrong label stays above the mean of its batch until the network has memorized the
label: so nothing is added from the memorization onset on (docs/evidence/turn.md).
"""

import numpy as np

from prunedata.counting.batches import Batches
from prunedata.counting.counts import CHUNK, each_batch
from prunedata.policies.rules import MEAN_EXCESS
from prunedata.types import Arrays, Counts, Recorded

__all__ = ["SUMS", "Excess"]

LARGEST = 1e30
"""Largest excess of one loss: the sum over the visits of a sample in an epoch is then finite in float32."""
SUMS = frozenset({MEAN_EXCESS})
"""Arrays that in an open epoch have sums over the epoch: those of several processes add up."""


class Excess:
    """Updates the mean excess of each sample, the array ``mean_excess``: float32, shape (samples,).

    Attributes
    ----------
    is_on : bool
        Whether losses are added to it; False from the memorization onset on.
    """

    def __init__(self) -> None:
        self.is_on = True
        self._room: Recorded = np.empty(0, dtype=np.float32)

    def arrays(self, samples: int) -> Arrays:
        """Return the means before the first epoch."""
        return {MEAN_EXCESS: np.zeros(samples, dtype=np.float32)}

    def begin(self, finished: Arrays) -> Arrays:
        """Return the sums of an epoch that begins."""
        return {MEAN_EXCESS: np.zeros_like(finished[MEAN_EXCESS])}

    def add(self, arrays: Arrays, batches: Batches, visits: Counts) -> None:
        """Add the excess of each loss to the epoch's sums, in place: one visit after the other, in float32."""
        if not self.is_on:
            return
        losses = batches.losses
        if losses.size > self._room.size or losses.dtype != self._room.dtype:
            self._room = np.empty_like(losses)  # it is reused: new memory would take as long as the sums
        room = self._room[: losses.size]
        each_batch(np.subtract, losses, batches.sizes, batches.means.astype(losses.dtype), room)
        np.clip(room, -LARGEST, LARGEST, out=room)
        np.add.at(arrays[MEAN_EXCESS], batches.ids, room.astype(np.float32, copy=False))

    def end(self, finished: Arrays, arrays: Arrays, visits: Counts, visited: Counts) -> Arrays:
        """Return the means after an epoch, from those before it and the epoch's sums, which are overwritten.

        ``visits`` are those of the run so far, this epoch included; ``visited`` those of this epoch, shape (samples,).
        """
        if not self.is_on:
            return {}
        mean, sums = finished[MEAN_EXCESS], arrays[MEAN_EXCESS]
        for first in range(0, mean.size, CHUNK):  # in chunks and in place: temporaries would double the memory
            part = slice(first, first + CHUNK)
            number = np.maximum(visits[part], 1).astype(np.float32)
            sums[part] = mean[part] + (sums[part] - visited[part].astype(np.float32) * mean[part]) / number
        return {MEAN_EXCESS: sums}
