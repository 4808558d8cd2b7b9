"""The choosers that most arms share: train on all samples, or on what a pruner keeps."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader

from benchmarks.study.arm import Ids, PlannedEpoch, Task
from prunedata import Pruner
from prunedata.adapters.torch import wrap
from prunedata.policies import Policy

__all__ = ["AllSamples", "Pruned", "cut", "prune_by"]


class AllSamples:
    """Train on all samples: a plain loop that knows nothing of pruning."""

    overhead, pruner = 0.0, None

    def __init__(self, task: Task) -> None:
        self._task, self._next = task, 0

    def epochs(self) -> Iterator[PlannedEpoch]:
        while self._next < self._task.epochs:
            order = np.random.default_rng((self._task.seed, self._next)).permutation(self._task.samples)
            yield PlannedEpoch(self._next, False, cut(order, self._task.batch_size))
            self._next += 1

    def reduce(self, ids: Ids, losses: Tensor) -> Tensor:
        return losses.mean()

    def state_dict(self) -> dict[str, Any]:
        return {"next": self._next + 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._next = state["next"]


class Pruned:
    """Train on what a pruner keeps. The images stay on the device that trains: only ids go through the loader."""

    def __init__(self, task: Task, policy: Policy) -> None:
        self.pruner = Pruner(
            task.samples,
            task.schedule,
            prune=task.prune,
            policy=policy,
            seed=task.seed,
            batch_size=task.batch_size,
            classes=task.classes,
        )
        ids: DataLoader[int] = DataLoader(
            range(task.samples),  # type: ignore[arg-type]  # it has a length and items, which is all that is needed
            batch_size=task.batch_size,
            shuffle=True,
            collate_fn=list,
        )
        self._loader = wrap(ids, self.pruner, with_ids=True)

    @property
    def overhead(self) -> float:
        return float(sum(record["overhead"] for record in self.pruner.history))

    def epochs(self) -> Iterator[PlannedEpoch]:
        for epoch in self.pruner.epochs():
            yield PlannedEpoch(epoch.number, epoch.pruned, (ids for ids, _ in self._loader))

    def reduce(self, ids: Ids, losses: Tensor) -> Tensor:
        mean: Tensor = self._loader.observe(losses, ids)
        return mean

    def state_dict(self) -> dict[str, Any]:
        return self.pruner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.pruner.load_state_dict(state)


def prune_by(policy: Policy) -> Callable[[Task], Pruned]:
    """Return what makes the chooser of a run that prunes by `policy`."""
    return lambda task: Pruned(task, policy)


def cut(order: Ids, size: int) -> Iterator[Ids]:
    """Cut an order into batches."""
    return (order[first : first + size] for first in range(0, len(order), size))
