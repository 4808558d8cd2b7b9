"""The order of a pruned stream, which selects its samples itself, in whichever processes its workers are."""

import math
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from prunedata.adapters.torch.orders.base import Order
from prunedata.adapters.torch.trainers import is_accelerate
from prunedata.errors import LossError, PrunedataError
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.run.waiting import SharedSteps
from prunedata.types import SomeIds


class StreamOrder(Order):
    """The order in which a stream's workers happen to deliver its samples.

    Of several ranks each reads a share of the stream, of an unknown number of batches. So before every step the ranks
    exchange how many samples they have for it. A rank that has none left delivers its last batch again, with the
    weight 0, until all ranks have come to their end; or with ``uneven="drop"`` all stop at once. The batches of one
    step are one global batch, whose mean decides which of its losses are hits.
    """

    gives_once = True

    def __init__(self, loader: DataLoader[Any], pruner: Pruner, uneven: str = "weights") -> None:
        super().__init__(pruner, loader.batch_size or 1, loader.drop_last)
        self.workers, self.uneven = max(1, loader.num_workers), uneven
        self._expected = self.remaining  # the samples that have not come yet
        self._stream: Any = loader.dataset
        self._scales: dict[int, float] = {}  # the factor for the mean loss of a batch, by its first id
        self._in_steps = False  # whether the ranks exchange their numbers of samples before every step
        self._total = 0  # samples in the steps so far, of all ranks
        self.run.streams = True
        self.run.add_setting(f"a stream, uneven={uneven}")

    def begin(self, epoch: Epoch, *, whole: bool = False) -> None:
        """Start to deliver what remains of an epoch."""
        super().begin(epoch, whole=whole)
        self._expected = self.remaining.copy()
        self._scales, self._trained_samples, self._total = {}, {}, 0
        if hasattr(self._stream, "place"):
            self._stream.place = self.run.group_place()

    def samplers(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """Return nothing: a stream has no sampler."""
        return {}

    def num_batches(self, kept: int) -> None:
        """Return None: how batches are cut depends on how the workers share the stream."""

    def sharing(self) -> SharedSteps | None:
        """Return the steps, unless a trainer sees to it that the ranks have as many batches."""
        alone = self.run.group_size() == 1 or self.run.leader is not None or is_accelerate()
        return None if alone else self.run.steps

    def steps(self, batches: Iterator[tuple[SomeIds, Any]]) -> Iterator[tuple[SomeIds, Any]]:
        """Yield this rank's batches, as many as every other rank yields; placeholders have -1 for all ids."""
        self._in_steps = self.sharing() is not None
        if not self._in_steps:
            yield from batches
            return
        last: Any = None
        while True:
            ids, batch = next(batches, (np.zeros(0, dtype=np.int64), None))
            sizes = self.run.gather(len(ids))
            total = sum(sizes)
            if not total or (self.uneven == "drop" and 0 in sizes):
                return
            if last is None and 0 in sizes:  # a rank that never had a batch gets one of another's
                last = self.run.broadcast(int(np.argmax(sizes)), (len(ids), batch))
            self._total += total
            self.run.steps.take(ids)
            if len(ids):
                last = len(ids), batch
            else:
                ids, batch = np.full(last[0], -1), last[1]
            if self.pruner.current.zero_weights:
                own = self.pruner.current.counting(ids) if ids[0] >= 0 else 0
                trained = sum(self.run.gather(own)) / len(sizes)
                self._trained_samples[int(ids[0])] = deque([trained if ids[0] >= 0 else math.inf])
            if min(sizes) != max(sizes):
                self._scales[int(ids[0])] = len(ids) * len(sizes) / total
            yield ids, batch

    def select(self, ids: SomeIds) -> tuple[slice | SomeIds, float | None]:
        """Record nothing of a placeholder batch; weight the others by their parts of the global batch."""
        if self._begun is not self.pruner.current:  # accelerate iterates the stream itself, deals it, and repeats some
            self._begun, self._in_steps = self.pruner.current, False
            self._received = np.zeros(self.pruner.samples, dtype=np.bool_)
        if not self._in_steps:
            return super().select(ids)
        if len(ids) and ids[0] < 0:
            return slice(0), 0.0
        return slice(None), self._scales.pop(int(ids[0]), None) if self._scales and len(ids) else None

    def total_delivered(self, delivered: int) -> int:
        """Return how many samples all ranks have delivered, by the numbers that they exchanged."""
        return self._total if self._in_steps else delivered

    def check_batch(self, ids: SomeIds) -> None:
        """Raise if the stream delivers a sample again."""
        if len(ids) and ids[0] < 0:
            return
        expected = self._expected[ids]
        if not expected.all():
            raise LossError(
                f"Expected a stream to deliver each sample of epoch {self.delivery.epoch} once. Got sample "
                f"{ids[np.argmin(expected)]} again: does a mixture give some of its samples more often; do several "
                "workers, or ranks, read all of the raw samples instead of a share each; or is the id a position, "
                "which every worker counts from zero? To keep a mixture, make each repetition a sample of its own: "
                "Pruner(its length), with its places as ids."
            )
        self._expected[ids] = False

    def finish(self, delivered: int) -> None:
        """Report the samples that ``drop_last`` may have cut: less than a batch of each worker's share.

        Raises :class:`PrunedataError` if these are all: the epoch would train on nothing, and end silently.
        """
        missing = max(0, int(np.count_nonzero(self.remaining)) - self.total_delivered(delivered))
        knows_all = self._in_steps or self.run.group_size() == 1
        if self.drop_last and self.whole and missing and knows_all and not self.total_delivered(delivered):
            raise PrunedataError(
                f"Expected at least one batch of {self.batch_size} samples in each epoch, as the loader has drop_last. "
                f"Got none of the {missing} samples of epoch {self.delivery.epoch}, as each of {self.workers} workers "
                "cuts its own share into batches: use drop_last=False, smaller batches, or fewer workers."
            )
        if self._in_steps and self.uneven == "drop":
            self.delivery.left_out = missing
        elif self.drop_last:
            readers = self.workers * (self.run.group_size() if self._in_steps else 1)
            self.delivery.left_out = min(missing, readers * (self.batch_size - 1))
