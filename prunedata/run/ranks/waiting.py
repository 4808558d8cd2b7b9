"""Losses that wait for the mean of their global batch, of which each process has seen a part."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prunedata.run.counts import hit_limits
from prunedata.run.epoch import Epoch
from prunedata.run.order import epoch_order
from prunedata.types import Floats, Ids, Losses, Means, Sizes

__all__ = ["Settled", "SharedBatches", "WaitingLosses"]


@dataclass(frozen=True)
class SharedBatches:
    """How several processes share an epoch: its order is cut into global batches, and each of them is shared.

    Attributes
    ----------
    size : int
        Samples in a global batch.
    shuffle : bool
        Whether the order is random, as ``Epoch.order`` has it.
    """

    size: int
    shuffle: bool


@dataclass(frozen=True)
class Settled:
    """Losses batch after batch, as a process has them, with the means of the global batches."""

    ids: Ids
    losses: Losses
    sizes: Sizes
    means: Means

    def hits(self, tolerance: float) -> npt.NDArray[np.bool_]:
        """Algorithm 1, line 5, shape (visits,): as ``find_hits``."""
        return np.asarray(self.losses > np.repeat(hit_limits(self.means, tolerance), self.sizes))


class WaitingLosses:
    """A loss for each sample that a process observed in the open epoch.

    Parameters
    ----------
    shared : SharedBatches
    losses : ndarray of float64, shape (samples,)
        Minus infinity where none waits.
    """

    def __init__(self, shared: SharedBatches, losses: Losses) -> None:
        self.shared, self.losses = shared, losses

    @classmethod
    def none(cls, shared: SharedBatches, samples: int) -> "WaitingLosses":
        """None wait yet."""
        return cls(shared, np.full(samples, -np.inf))

    def settle(self, epoch: Epoch, add_up: Callable[[Floats], Floats] = lambda sums: sums) -> Settled:
        """Return what waits, with the means of the global batches.

        Parameters
        ----------
        epoch : Epoch
            The open one.
        add_up : callable
            Adds up an array over all processes, element by element.
        """
        waits, size = self.losses > -np.inf, self.shared.size
        ids: list[Ids] = []
        numbers: list[Ids] = []
        place = 0
        for piece in epoch_order(epoch.keep, seed=epoch.seed, epoch=epoch.number, shuffle=self.shared.shuffle):
            own = np.flatnonzero(waits[piece])
            ids.append(piece[own].astype(np.int64, copy=False))
            numbers.append((own + place) // size)
            place += piece.size
        batches = -(-place // size)
        others = np.flatnonzero(waits & ~epoch.keep)  # pruned, but observed all the same: a batch of their own
        which, number = np.concatenate([*ids, others]), np.concatenate([*numbers, np.full(others.size, batches)])
        losses = self.losses[which]
        sums = np.bincount(number, weights=losses, minlength=batches + 1)
        sizes = np.bincount(number, minlength=batches + 1)
        total, of = add_up(np.stack([sums, sizes.astype(np.float64)]))
        here = sizes > 0
        return Settled(which, losses, sizes[here], total[here] / of[here])
