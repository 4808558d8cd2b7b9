"""``local``: a server that adds the mean of what all workers changed in some steps of their own (local SGD)."""

import asyncio
from typing import Any

import numpy as np

from benchmarks.distributed.training.rmsprop import Vector
from benchmarks.distributed.training.serving.servers import WeightServer

__all__ = ["AveragingServer"]


class Adding:
    """An optimiser that adds what it is given: workers have optimisers of their own."""

    def __init__(self, weights: Vector) -> None:
        self.weights = np.array(weights, dtype=np.float32)
        self.average = np.zeros_like(self.weights)

    def step(self, difference: Vector) -> None:
        """Add a difference."""
        self.weights = self.weights + difference


class AveragingServer(WeightServer):
    """What runs in the process of a server of ``local``.

    It updates when each worker that has a batch has sent its difference, so none is ever dropped. The mean is over
    samples: a worker that made fewer steps, at the end of an epoch, counts less.
    """

    def __init__(self, weights: Vector, average: Vector | None, learning_rate: float, workers: int) -> None:
        super().__init__(weights, average, learning_rate)
        self._optimiser: Any = Adding(weights)
        self._active = set(range(workers))
        self._waiting: dict[int, tuple[Vector, int]] = {}
        self._updated = asyncio.Condition()

    async def pull(self, after: int = -1) -> tuple[Vector, int]:  # type: ignore[override]
        """The weights and their version, when it is later than ``after``."""
        async with self._updated:
            await self._updated.wait_for(lambda: self._version > after)
            return self._optimiser.weights, self._version

    async def push(self, difference: Vector, version: int, size: int, worker: int) -> int:  # type: ignore[override]
        """Take a worker's difference, of ``size`` samples, from the weights of the newest version; return that."""
        async with self._updated:
            assert version == self._version, "a worker that has a batch is waited for"
            self._waiting[worker] = difference, size
            self._update_if_all_came()
            return version

    async def rest(self, worker: int, rests: bool) -> None:
        """Don't wait for a worker: it has no batch, or died. Or wait for it again."""
        async with self._updated:
            (self._active.discard if rests else self._active.add)(worker)
            self._update_if_all_came()

    async def dropped(self) -> int:
        """How many came too late: none ever."""
        return 0

    def _update_if_all_came(self) -> None:
        if self._waiting and self._active <= self._waiting.keys():
            came = [self._waiting[worker] for worker in sorted(self._waiting)]
            sizes = np.array([size for _, size in came], np.float32)
            mean: Any = np.average([difference for difference, _ in came], axis=0, weights=sizes)
            self._waiting.clear()
            self._apply(mean.astype(np.float32), self._version)
            self._updated.notify_all()
