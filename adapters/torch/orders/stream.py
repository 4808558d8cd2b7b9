"""A pruned stream, which chooses its samples itself, wherever its workers are."""

import math
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from prunedata.adapters.torch.orders.base import Order
from prunedata.adapters.torch.sharing import is_accelerates
from prunedata.counting.waiting import SharedSteps
from prunedata.errors import LossError
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["StreamOrder"]


class StreamOrder(Order):
    """The order in which a stream's workers happen to give its samples.

    Of several ranks each reads a share of the stream, and nobody knows how many batches that makes. So the ranks tell
    each other before every step how many samples they have for it. One that has none left gives its last batch again,
    with the weight 0, until all have come to their end; or all stop at once. What they have for one step is one global
    batch, against whose mean its losses are held.
    """

    once = True

    def __init__(self, loader: DataLoader[Any], pruner: Pruner, uneven: str = "weights") -> None:
        super().__init__(pruner, loader.batch_size or 1, loader.drop_last)
        self.workers, self.uneven = max(1, loader.num_workers), uneven
        self._waiting = self.remaining
        self._stream: Any = loader.dataset
        self._scales: dict[int, float] = {}
        self._given = 0
        """Samples in the steps of all ranks, if they tell each other."""
        self._in_steps = False
        """Whether they do."""
        self.run.streams = True
        self.run.cut_by(f"a stream, uneven={uneven}")

    def begin(self, epoch: Epoch, *, whole: bool = False) -> None:
        """Set out on what remains."""
        super().begin(epoch, whole=whole)
        self._waiting = self.remaining.copy()
        self._scales, self._counting, self._given = {}, {}, 0
        if hasattr(self._stream, "place"):
            self._stream.place = self.run.group_place()

    def samplers(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """None: a stream has no sampler."""
        return {}

    def batches_of(self, kept: int) -> None:
        """Nobody knows: how batches are cut depends on how the workers share the stream."""

    def sharing(self) -> SharedSteps | None:
        """All batches of one step, unless something else sees to it that the ranks have as many."""
        alone = self.run.group_size() == 1 or self.run.leader is not None or is_accelerates()
        return None if alone else self.run.steps

    def steps(self, batches: Iterator[tuple[SomeIds, Any]]) -> Iterator[tuple[SomeIds, Any]]:
        """Yield as many batches as every other rank."""
        self._in_steps = self.sharing() is not None
        if not self._in_steps:
            yield from batches
            return
        last: Any = None
        while True:
            ids, batch = next(batches, (np.zeros(0, dtype=np.int64), None))
            sizes = self.run.of_all(len(ids))
            total = sum(sizes)
            if not total or (self.uneven == "drop" and 0 in sizes):
                return
            if last is None and 0 in sizes:  # a rank that never had a batch gets one of another's
                last = self.run.from_rank(int(np.argmax(sizes)), (len(ids), batch))
            self._given += total
            self.run.steps.take(ids)
            if len(ids):
                last = len(ids), batch
            else:
                ids, batch = np.full(last[0], -1), last[1]
            if self.pruner.current.zero_weights:
                own = self.pruner.current.counting(ids) if ids[0] >= 0 else 0
                counting = sum(self.run.of_all(own)) / len(sizes)
                self._counting[int(ids[0])] = deque([counting if ids[0] >= 0 else math.inf])
            if min(sizes) != max(sizes):
                self._scales[int(ids[0])] = len(ids) * len(sizes) / total
            yield ids, batch

    def part(self, ids: SomeIds) -> tuple[slice | SomeIds, float | None]:
        """Nothing of a batch that stands in for none counts; the others weigh as much as they are of all."""
        if self._begun is not self.pruner.current:  # accelerate iterates the stream itself, deals it, and repeats some
            self._begun, self._in_steps = self.pruner.current, False
            self._came = np.zeros(self.pruner.samples, dtype=np.bool_)
        if not self._in_steps:
            return super().part(ids)
        if len(ids) and ids[0] < 0:
            return slice(0), 0.0
        return slice(None), self._scales.pop(int(ids[0]), None) if self._scales and len(ids) else None

    def overall(self, delivered: int) -> int:
        """What the ranks have told each other."""
        return self._given if self._in_steps else delivered

    def deliver(self, ids: SomeIds) -> None:
        """Raise if the stream gives a sample again: each has to come once."""
        if len(ids) and ids[0] < 0:
            return
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
        missing = max(0, int(np.count_nonzero(self.remaining)) - self.overall(delivered))
        if self._in_steps and self.uneven == "drop":
            self.delivery.left_out = missing
        elif self.drop_last:
            readers = self.workers * (self.run.group_size() if self._in_steps else 1)
            self.delivery.left_out = min(missing, readers * (self.batch_size - 1))
