"""A pruned stream, which chooses its samples itself, wherever its workers are."""

from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from prunedata.adapters.torch.orders.base import Order
from prunedata.errors import LossError
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["StreamOrder"]


class StreamOrder(Order):
    """The order in which a stream's workers happen to give its samples."""

    def __init__(self, loader: DataLoader[Any], pruner: Pruner) -> None:
        super().__init__(pruner, loader.batch_size or 1, loader.drop_last)
        self.workers = max(1, loader.num_workers)
        self._waiting = self.remaining

    def begin(self, epoch: Epoch, *, whole: bool = False) -> None:
        """Set out on what remains."""
        super().begin(epoch, whole=whole)
        self._waiting = self.remaining.copy()

    def samplers(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """None: a stream has no sampler."""
        return {}

    def batches_of(self, kept: int) -> None:
        """Nobody knows: how batches are cut depends on how the workers share the stream."""

    def deliver(self, ids: SomeIds) -> None:
        """Raise if the stream gives a sample again: each has to come once."""
        waiting = self._waiting[ids]
        if not waiting.all():
            raise LossError(
                f"Expected a stream to deliver each sample of epoch {self.delivery.epoch} once. Got sample "
                f"{ids[np.argmin(waiting)]} again: do several workers, or ranks, read all of the raw samples instead "
                "of a share each, or is the id a position, which every worker counts from zero?"
            )
        self._waiting[ids] = False

    def finish(self, delivered: int) -> None:
        """Tell what drop_last can have cut: the tail of each worker's share, of a length that only it knows."""
        if self.drop_last:
            missing = int(np.count_nonzero(self.remaining)) - delivered
            self.delivery.left_out = max(0, min(missing, self.workers * (self.batch_size - 1)))
