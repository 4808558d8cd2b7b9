"""Parameter servers: each has a part of the weights in a Ray actor, updates it, and counts staleness."""

from collections import Counter
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayActorError

from benchmarks.distributed.rmsprop import RMSProp, Vector

__all__ = ["ServerDied", "Servers", "WeightServer"]


class ServerDied(ConnectionError):
    """A parameter server does not answer: it died. Its weights are gone."""


class WeightServer:
    """What runs in a server's process. Weights are never changed in place: what was pulled stays as it was."""

    def __init__(self, weights: Vector) -> None:
        self._optimiser = RMSProp(weights)
        self._version = 0
        self._staleness: Counter[int] = Counter()

    def pull(self) -> tuple[Vector, int]:
        """The weights, and how many updates they have got."""
        return self._optimiser.weights, self._version

    def push(self, gradient: Vector, version: int) -> int:
        """Apply a gradient that weights of such a version made; return the version that it was applied to."""
        newest = self._version
        self._optimiser.step(gradient)
        self._version += 1
        self._staleness[newest - version] += 1
        return newest

    def staleness(self) -> dict[int, int]:
        """How many gradients were how stale: updates between the weights that made one and those that got it."""
        return dict(sorted(self._staleness.items()))


class Servers:
    """All parameter servers, as a worker sees them: one vector of weights, in parts. It can be sent to workers."""

    def __init__(self, weights: Vector, servers: int) -> None:
        actor: Any = ray.remote(WeightServer).options(num_cpus=0)
        self._actors = [actor.remote(part) for part in np.array_split(weights, servers)]

    def pull(self) -> tuple[Vector, list[int]]:
        """All weights, shape (n,), and the version of each server's part."""
        pulled = self._ask("pull", [()] * len(self._actors))
        return np.concatenate([part for part, _ in pulled]), [version for _, version in pulled]

    def push(self, gradient: Vector, versions: list[int]) -> list[int]:
        """Apply a gradient, shape (n,), that weights of these versions made; return the versions that it met."""
        parts = np.array_split(gradient, len(self._actors))
        return self._ask("push", list(zip(parts, versions, strict=True)))

    def staleness(self) -> list[dict[int, int]]:
        """How many gradients were how stale, at each server."""
        return self._ask("staleness", [()] * len(self._actors))

    def _ask(self, verb: str, given: list[Any]) -> list[Any]:
        answers = [getattr(actor, verb).remote(*some) for actor, some in zip(self._actors, given, strict=True)]
        found = []
        for place, answer in enumerate(answers):
            try:
                found.append(ray.get(answer))
            except RayActorError as error:
                raise ServerDied(
                    f"Expected parameter server {place} of {len(answers)} to answer. Got none, as its process or node "
                    "died, and its weights with it: train again from the last checkpoint."
                ) from error
        return found
