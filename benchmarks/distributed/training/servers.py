"""Parameter servers: each has a part of the weights in a Ray actor, updates it, and counts staleness."""

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
import ray
from ray.exceptions import OutOfMemoryError, RayActorError

from benchmarks.distributed.training.replica import RMSProp, Vector

__all__ = ["AveragingServer", "Pushed", "QuorumServer", "ServerDied", "ServerOutOfMemory", "Servers", "WeightServer"]

AGAIN = "run the same command again; with --checkpoint it goes on from the last epoch that ended."


class ServerDied(ConnectionError):
    """A parameter server does not answer: it died. Its weights are gone."""


class ServerOutOfMemory(ServerDied):
    """A parameter server has too little memory for its part of the weights."""


class WeightServer:
    """What runs in a server's process. Weights are never changed in place: what was pulled stays as it was."""

    def __init__(self, weights: Vector, average: Vector | None = None, learning_rate: float = 0.1) -> None:
        self._optimiser = RMSProp(weights, learning_rate)
        if average is not None:
            self._optimiser.average = np.array(average)
        self._version = 0
        self._staleness: Counter[int] = Counter()
        self._seconds = 0.0

    def pull(self, after: int = -1) -> tuple[Vector, int]:
        """The weights, and how many updates they have got. Nothing waits for more than ``after``."""
        return self._optimiser.weights, self._version

    def push(self, gradient: Vector, version: int, size: int = 1) -> int:
        """Apply a gradient that weights of such a version made; return the version that it was applied to."""
        return self._apply(gradient, version)

    def _apply(self, gradient: Vector, version: int) -> int:
        since = perf_counter()
        newest = self._version
        self._optimiser.step(gradient)
        self._version += 1
        self._staleness[newest - version] += 1
        self._seconds += perf_counter() - since
        return newest

    def staleness(self) -> dict[int, int]:
        """How many gradients were how stale: updates between the weights that made one and those that got it."""
        return dict(sorted(self._staleness.items()))

    def average(self) -> Vector:
        """The optimiser's average of squared gradients."""
        return self._optimiser.average

    def pid(self) -> int:
        """For who wants to kill it."""
        return os.getpid()

    def seconds(self) -> float:
        """Spent on updates."""
        return self._seconds


class Servers:
    """All parameter servers, as a worker sees them: one vector of weights, in parts. It can be sent to workers.

    Parameters
    ----------
    weights : ndarray of float32, shape (n,)
    servers : int
    average : ndarray of float32, shape (n,), optional
        The optimiser's average, of a run that goes on.
    learning_rate : float
    options : sequence of dict, optional
        Options of each server's actor, which say where it runs.
    kind : tuple
        What runs in each process, and its further arguments.
    """

    def __init__(
        self,
        weights: Vector,
        servers: int,
        average: Vector | None = None,
        learning_rate: float = 0.1,
        options: Sequence[dict[str, Any]] | None = None,
        kind: tuple[type[WeightServer], tuple[int, ...]] = (WeightServer, ()),
    ) -> None:
        actor: Any = ray.remote(kind[0])
        parts = np.array_split(weights, servers)
        averages: Sequence[Any] = [None] * servers if average is None else np.array_split(average, servers)
        places = options or [{"num_cpus": 0}] * servers
        self.actors = [
            actor.options(**place).remote(*given, learning_rate, *kind[1])
            for place, *given in zip(places, parts, averages, strict=True)
        ]

    def pull(self, after: Sequence[int] | None = None) -> tuple[Vector, list[int]]:
        """All weights, shape (n,), and the version of each server's part: later than ``after``, if servers wait."""
        asked = zip(self.actors, after or [-1] * len(self.actors), strict=True)
        pulled = _answers([actor.pull.remote(version) for actor, version in asked])
        return np.concatenate([part for part, _ in pulled]), [version for _, version in pulled]

    def push(self, gradient: Vector, versions: list[int], size: int, *worker: int) -> "Pushed":
        """Begin to apply a gradient of so many samples, shape (n,), that weights of these versions made.

        Servers of ``local`` take a difference of weights instead, and want to know whose it is.
        """
        parts = np.array_split(gradient, len(self.actors))
        given = zip(self.actors, parts, versions, strict=True)
        return Pushed([actor.push.remote(part, version, size, *worker) for actor, part, version in given])

    def rest(self, worker: int, rests: bool) -> None:
        """Don't wait for a worker that has no batch, or wait again. For servers that wait."""
        _answers([actor.rest.remote(worker, rests) for actor in self.actors])

    def dropped(self) -> int:
        """How many gradients came too late, at the first server. For servers that wait."""
        return int(_answers([self.actors[0].dropped.remote()])[0])

    def staleness(self) -> list[dict[int, int]]:
        """How many gradients were how stale, at each server."""
        return self._ask("staleness")

    def average(self) -> Vector:
        """The optimiser's average, shape (n,)."""
        found: Vector = np.concatenate(self._ask("average"))
        return found

    def seconds(self) -> list[float]:
        """What each server has spent on updates."""
        return self._ask("seconds")

    def _ask(self, verb: str) -> list[Any]:
        return _answers([getattr(actor, verb).remote() for actor in self.actors])


class Pushed:
    """A gradient on its way to the servers."""

    def __init__(self, answers: list[Any]) -> None:
        self._answers = answers

    def wait(self) -> list[int]:
        """Wait until all servers have applied it; return the versions that it met."""
        return _answers(self._answers)


def _answers(asked: list[Any]) -> list[Any]:
    found = []
    for place, answer in enumerate(asked):
        try:
            found.append(ray.get(answer))
        except RayActorError as error:
            raise ServerDied(
                f"Expected parameter server {place} of {len(asked)} to answer. Got none, as its process or node "
                f"died, and its weights with it: {AGAIN}"
            ) from error
        except (OutOfMemoryError, MemoryError) as error:  # Ray ended it, or it could not allocate
            raise ServerOutOfMemory(
                f"Expected parameter server {place} of {len(asked)} to have the memory for an update, about six times "
                "its weights. Got less: give more --servers, each with a smaller part, or --placement dedicated; "
                f"{AGAIN}"
            ) from error
    return found


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
