"""What each epoch of a run is trained on: all samples, what a Pruner keeps, or what SeTa's window does."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.frontier.arms import ARMS, Plan
from benchmarks.frontier.data.material import HeadTask
from benchmarks.frontier.training.policies import SlidingWindow, policy_of
from prunedata import Pruner, Schedule
from prunedata.run.order import cut_batches, epoch_order
from prunedata.types import LeaveOut

__all__ = ["Batches", "ByPruner", "ByWindow", "Selection", "Unpruned", "selection_of"]

Ids = NDArray[np.integer[Any]]
Batches = list[Ids]
"""The ids of an epoch, batch by batch."""


class Selection(Protocol):
    """Chooses the samples of each epoch, and gets what they were observed with.

    Attributes
    ----------
    left_out : ndarray of bool, shape (samples,), or None
        What the epoch that began last leaves out; None if that is nothing.
    """

    left_out: NDArray[np.bool_] | None

    def epochs(self) -> Iterator[Batches]:
        """Yield the batches of each epoch."""
        ...

    def observe(self, ids: Ids, signals: NDArray[Any]) -> None:
        """Take a batch's ids and signals, which are losses if nothing else is said."""
        ...

    def validated(self, right: float) -> None:
        """Take how many percent of the labels held out are right, after an epoch."""
        ...


class Unpruned:
    """All of them, in an order of its own for each epoch, or in the one in which a Pruner delivers them."""

    left_out: NDArray[np.bool_] | None = None

    def __init__(self, seed: int, epochs: int, samples: int, batch_size: int, delivered: bool = False) -> None:
        self._seed, self._epochs, self._samples, self._batch_size = seed, epochs, samples, batch_size
        self._delivered = delivered

    def epochs(self) -> Iterator[Batches]:
        for number in range(self._epochs):
            yield list(cut_batches(self._order(number), self._batch_size))

    def _order(self, number: int) -> Iterable[Ids]:
        if self._delivered:
            return epoch_order(np.ones(self._samples, bool), seed=self._seed, epoch=number)
        return [np.random.default_rng((self._seed, number)).permutation(self._samples)]

    def observe(self, ids: Ids, signals: NDArray[Any]) -> None:
        """Nothing is kept."""

    def validated(self, right: float) -> None:
        """Nothing goes by it."""


class ByPruner:
    """What a Pruner keeps, or by weight all, of which what it leaves out is not to count."""

    left_out: NDArray[np.bool_] | None = None

    def __init__(self, pruner: Pruner, batch_size: int) -> None:
        self.pruner, self._batch_size = pruner, batch_size

    def epochs(self) -> Iterator[Batches]:
        for epoch in self.pruner.epochs():
            self.left_out = ~epoch.trained if epoch.pruned else None
            yield list(epoch.batches(self._batch_size))

    def observe(self, ids: Ids, signals: NDArray[Any]) -> None:
        self.pruner.observe(signals, ids)

    def validated(self, right: float) -> None:
        self.pruner.validated(right, lower_is_better=False)


class ByWindow:
    """What SeTa's window keeps."""

    left_out: NDArray[np.bool_] | None = None

    def __init__(self, window: SlidingWindow, batch_size: int) -> None:
        self._window, self._batch_size = window, batch_size

    def epochs(self) -> Iterator[Batches]:
        for number in range(self._window.epochs):
            ids = self._window.ids(number)
            self.left_out = np.ones(self._window.samples, bool)
            self.left_out[ids] = False
            yield list(cut_batches([ids], self._batch_size))

    def observe(self, ids: Ids, signals: NDArray[Any]) -> None:
        self._window.observe(ids, signals)

    def validated(self, right: float) -> None:
        """Nothing goes by it."""


def selection_of(plan: Plan, task: HeadTask, batch_size: int, leave_out: LeaveOut = "delivery") -> Selection:
    """Return the selection of a run; ``by`` is the Pruner's."""
    samples, policy = len(task.train), ARMS[plan.arm].policy
    if not policy:
        return Unpruned(plan.seed, plan.epochs, samples, batch_size, ARMS[plan.arm].delivered)
    if policy == "seta":
        return ByWindow(SlidingWindow(samples, plan.epochs, plan.seed), batch_size)
    if policy == "counts":
        raise ValueError(f"Expected an arm that can be run. Got {plan.arm}, of which runs are recorded.")
    auto = policy == "auto"
    schedule = Schedule(plan.epochs, window=plan.epochs, start=plan.start, block=1, pruned_per_block=1)
    pruner = Pruner(
        samples,
        Schedule.steady(plan.epochs) if auto else schedule,
        prune=plan.prune,
        policy="auto" if auto else policy_of(policy, task.wrong),
        seed=plan.seed,
        batch_size=batch_size,
        leave_out=leave_out,
        holdout=ARMS[plan.arm].holdout or None,
        labels=task.train.labels.numpy() if ARMS[plan.arm].labels else None,
    )
    return ByPruner(pruner, batch_size)
