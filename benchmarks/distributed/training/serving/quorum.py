"""``sync`` with backup workers: a server that waits for all but the slowest few, and drops what comes too late."""

import asyncio
from typing import Any

import numpy as np

from benchmarks.distributed.training.rmsprop import Vector
from benchmarks.distributed.training.serving.servers import WeightServer

__all__ = ["QuorumServer"]


class QuorumServer(WeightServer):
    """What runs in the process of a server that waits (Chen et al. 2016, Revisiting Distributed Synchronous SGD).

    An update is the mean of the first gradients that the newest weights made: of as many workers as have a batch, less
    ``backup``. Gradients of older weights are dropped.
    """

    def __init__(
        self, weights: Vector, average: Vector | None, learning_rate: float, workers: int, backup: int
    ) -> None:
        super().__init__(weights, average, learning_rate)
        self._workers, self._backup = workers, backup
        self._idle: set[int] = set()
        self._waiting: list[tuple[Vector, int]] = []
        self._updated = asyncio.Condition()
        self._dropped = 0

    async def pull(self, after: int = -1) -> tuple[Vector, int]:  # type: ignore[override]
        """The weights and their version, when it is later than ``after``."""
        async with self._updated:
            await self._updated.wait_for(lambda: self._version > after)
            return self._optimiser.weights, self._version

    async def push(self, gradient: Vector, version: int, size: int = 1) -> int:  # type: ignore[override]
        """Take the gradient of ``size`` samples; drop it if the weights have moved on. Return their version."""
        async with self._updated:
            newest = self._version
            if version == newest:
                self._waiting.append((gradient, size))
                self._update_if_enough()
            else:
                self._dropped += 1
            return newest

    async def rest(self, worker: int, rests: bool) -> None:
        """Don't wait for a worker: it has no batch, or died."""
        async with self._updated:
            (self._idle.add if rests else self._idle.discard)(worker)
            self._update_if_enough()

    async def dropped(self) -> int:
        """How many gradients came too late."""
        return self._dropped

    def _update_if_enough(self) -> None:
        needed = max(1, self._workers - len(self._idle) - self._backup)
        if len(self._waiting) >= needed:
            sizes = np.array([size for _, size in self._waiting], np.float32)
            mean: Any = np.average([gradient for gradient, _ in self._waiting], axis=0, weights=sizes)
            self._waiting.clear()
            self._apply(mean.astype(np.float32), self._version)
            self._updated.notify_all()
