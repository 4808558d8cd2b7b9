"""The choosers that most arms share: train on all samples, or on what a pruner keeps."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.study.arm import Ids, PlannedEpoch, Task
from prunedata import Pruner
from prunedata.adapters.torch import wrap
from prunedata.findings.compare import average_ranks, membership
from prunedata.policies import Policy
from prunedata.types import Array, Floats, LeaveOut, Mask

__all__ = ["AllSamples", "Found", "Pruned", "auc", "cut", "found", "precision_at", "prune_by", "rates"]


class AllSamples:
    """Train on all samples: a plain loop that knows nothing of pruning."""

    overhead, pruner, is_weighed = 0.0, None, False

    def __init__(self, task: Task) -> None:
        self._task, self._next = task, 0

    def epochs(self) -> Iterator[PlannedEpoch]:
        while self._next < self._task.epochs:
            task, size = self._task, self._task.own_batch_size
            order = np.random.default_rng((task.seed, self._next)).permutation(task.samples)
            # So many for each rank, as all have to take as many steps: the first come twice, as in PyTorch's sampler.
            mine = np.resize(order, -(-len(order) // task.ranks) * task.ranks)[task.rank :: task.ranks]
            yield PlannedEpoch(self._next, False, cut(mine, size), -(-len(mine) // size))
            self._next += 1

    def reduce(self, ids: Ids, losses: Tensor) -> Tensor:
        return losses.mean()

    def state_dict(self) -> dict[str, Any]:
        return {"next": self._next + 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._next = state["next"]


class Pruned:
    """Train on what a pruner keeps. The images stay on the device that trains: only ids go through the loader."""

    def __init__(
        self,
        task: Task,
        policy: Policy | Literal["auto"],
        leave_out: LeaveOut = "delivery",
        *,
        labels: NDArray[np.int64] | None = None,
    ) -> None:
        # Told to save nothing, it decides by itself.
        when: dict[str, Any] = (
            {"schedule": task.schedule, "prune": task.prune} if task.saving else {"epochs": task.epochs}
        )
        self.pruner = Pruner(
            task.samples,
            **when,
            policy=policy,
            seed=task.seed,
            batch_size=task.batch_size,
            classes=task.classes,
            leave_out=leave_out,
            labels=labels,
        )
        samples: Any = range(task.samples)  # it has a length and items, which is all that is needed
        shared: Any = DistributedSampler(samples, task.ranks, task.rank, seed=task.seed) if task.ranks > 1 else None
        ids: DataLoader[int] = DataLoader(
            samples, batch_size=task.own_batch_size, shuffle=shared is None, sampler=shared, collate_fn=list
        )
        self._loader = wrap(ids, self.pruner, with_ids=True)

    @property
    def is_weighed(self) -> bool:
        return self.pruner.is_weighed

    @property
    def overhead(self) -> float:
        return float(sum(record["overhead"] for record in self.pruner.history))

    def epochs(self) -> Iterator[PlannedEpoch]:
        for epoch in self.pruner.epochs():
            yield PlannedEpoch(epoch.number, epoch.pruned, (ids for ids, _ in self._loader), len(self._loader))

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


@dataclass(frozen=True)
class Found:
    """What a score finds: AUC, and precision at the top 100, the top tenth, and as many as are wrong."""

    auc: float | None
    precision_at_100: float
    precision_at_tenth: float
    precision_at_wrong: float

    def to_dict(self) -> dict[str, float | None]:
        return asdict(self)


def rates(hits: Array, visits: Array, high: Array | None = None) -> Floats:
    """The share of a sample's visits with a high loss, shape (samples,), from 0 to 1; 0 where it was never visited.

    Hits over visits; or if `high` is known, the mean of this and of `high` over visits.
    """
    counted = [hits] if high is None else [hits, high]
    seen = np.sum([np.asarray(array, dtype=np.int64) for array in counted], axis=0)
    return np.asarray(seen / (len(counted) * np.maximum(np.asarray(visits, dtype=np.int64), 1)), dtype=np.float64)


def found(scores: Array, wrong: Mask) -> Found:
    """Judge `scores`, both of shape (samples,): the higher a score, the more wrong a sample looks.

    Ties are never decided by the order of the samples: those that tie at an edge share what is left of the top.
    """
    scores, wrong = _checked(scores, wrong)
    return Found(
        auc(scores, wrong),
        precision_at(scores, wrong, min(100, wrong.size)),
        precision_at(scores, wrong, max(1, wrong.size // 10)),
        precision_at(scores, wrong, max(1, int(wrong.sum()))),
    )


def precision_at(scores: Array, wrong: Mask, top: int) -> float:
    """Share of the `top` highest scores that are wrong; of the samples that tie at the edge, what to expect."""
    scores, wrong = _checked(scores, wrong)
    if not 1 <= top <= scores.size:
        raise ValueError(f"Expected top from 1 to the {scores.size} samples. Got {top}.")
    return float(membership(scores, top)[wrong].sum() / top)


def auc(scores: Array, wrong: Mask) -> float | None:
    """Chance that a wrong sample scores higher than a right one, a tie counting half; None if all are alike."""
    scores, wrong = _checked(scores, wrong)
    bad, good = int(wrong.sum()), int((~wrong).sum())
    if not bad or not good:
        return None
    above = float(average_ranks(scores)[wrong].sum()) - bad * (bad + 1) / 2
    return above / (bad * good)


def _checked(scores: Array, wrong: Mask) -> tuple[Array, Mask]:
    scores, wrong = np.asarray(scores), np.asarray(wrong)
    if scores.ndim != 1 or scores.shape != wrong.shape or wrong.dtype != np.bool_:
        raise ValueError(
            f"Expected scores and a mask of one shape (samples,). Got {scores.shape} and {wrong.shape}, {wrong.dtype}."
        )
    if np.isnan(scores).any():
        raise ValueError("Expected scores that can be ordered. Got NaN.")
    return scores, wrong
