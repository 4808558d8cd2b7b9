"""An adapter as the clauses see it, and what a clause raises."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn
from unittest import SkipTest

import numpy as np
import numpy.typing as npt

from prunedata.plan.schedule import Schedule
from prunedata.policies.protocol import Policy
from prunedata.policies.rules import DroppingCount
from prunedata.run.pruner import Pruner

__all__ = ["BrokenContract", "Case", "Loader", "SkippedClause", "broken", "losses_of", "shorten"]

Loader = Iterable[tuple[Any, Any]]
# Whole, whole, then pruned twice in a row, and so on: lengths go down and up again, and masks change each time.
SCHEDULE = Schedule(6, window=6, start=1, block=3, pruned_per_block=2)


class BrokenContract(AssertionError):
    """An adapter breaks a clause of its contract.

    Attributes
    ----------
    clause : str
        Which, as in :data:`CLAUSES`.
    """

    def __init__(self, clause: str, message: str) -> None:
        super().__init__(f"Clause '{clause}' is broken. {message}")
        self.clause = clause


class SkippedClause(SkipTest):
    """A clause was not checked, for want of an option. pytest and unittest show the test as skipped.

    Attributes
    ----------
    clause : str
        Which, as in :data:`CLAUSES`.
    why : str
        What it lacks.
    """

    def __init__(self, clause: str, why: str) -> None:
        super().__init__(f"Clause '{clause}' was not checked: {why}.")
        self.clause, self.why = clause, why


@dataclass(frozen=True)
class Case:
    """An adapter as the clauses see it.

    Attributes
    ----------
    make_loader : callable
        ``make_loader(pruner, workers)`` returns what a user iterates in each epoch of ``pruner``: an iterable of
        ``(ids, batch)`` over a data set of ``pruner.samples`` samples, several batches an epoch, the last one
        not dropped. If it has ``state_dict`` and ``load_state_dict``, a run is resumed by them.
    samples : int
        Size of that data set.
    workers : tuple of int
        The numbers of workers to try.
    read : callable
        Returns the numbers of a batch's samples, shape (n,), out of the batch: put them there.
    plain : callable, optional
        ``plain(workers)`` returns the user's own loader, not pruned: an iterable of batches.
    resumes : bool
        Whether a run can go on in the middle of an epoch. If not, it has to be refused.
    reports : bool
        Whether the adapter says what it delivered. Without that, a loop that is left early goes unnoticed under
        policies that need no losses.
    weigh : callable, optional
        ``weigh(loader, ids, losses)`` returns the loss that the loop trains on, a number, for a batch whose losses
        are ``losses``, float64 of shape (n,). Leave it out if your user weighs the losses, by ``epoch.weights``.
    records : bool
        Whether ``weigh`` records the losses, too, so that the user need not call ``pruner.observe``.
    drop_last : callable, optional
        Like ``make_loader``, for a loader whose settings leave out some of the kept samples, as ``drop_last``.
    endless : callable, optional
        Like ``make_loader``, for a loader over a source that gives its samples over and over, without end.
    """

    make_loader: Callable[[Pruner, int], Loader]
    samples: int = 61
    workers: tuple[int, ...] = (0, 2)
    read: Callable[[Any], Any] = np.asarray
    plain: Callable[[int], Iterable[Any]] | None = None
    resumes: bool = True
    reports: bool = True
    weigh: Callable[[Any, Any, Any], Any] | None = None
    records: bool = False
    drop_last: Callable[[Pruner, int], Loader] | None = None
    endless: Callable[[Pruner, int], Loader] | None = None

    def pruner(self, *, prune: int | None = None, policy: Policy = DroppingCount()) -> Pruner:  # noqa: B008 (frozen)
        """A new run of six epochs, of which four leave out three samples of ten, or ``prune``."""
        amount = self.samples * 3 // 10 if prune is None else prune
        return Pruner(self.samples, SCHEDULE, prune=amount, policy=policy, seed=5)


def losses_of(ids: Any, epoch: int) -> npt.NDArray[np.float64]:
    """A loss for each id and epoch, shape (n,): whole numbers, so that their sums are exact in any order."""
    return (np.asarray(ids, dtype=np.int64) * 7919 + epoch * 104729).astype(np.float64) % 101


def broken(clause: str, expected: str, got: object) -> NoReturn:
    """Raise :class:`BrokenContract`."""
    raise BrokenContract(clause, f"Expected {expected}. Got {got}.")


def shorten(numbers: Any) -> str:
    """The first few numbers, for a message."""
    shown = ", ".join(str(number) for number in numbers[:5])
    return f"{shown}, ..." if len(numbers) > 5 else shown or "none"
