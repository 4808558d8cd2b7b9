"""An adapter as the clauses see it, what a clause raises, and a run over the adapter's loader, pass by pass."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn
from unittest import SkipTest

import numpy as np
import numpy.typing as npt

from prunedata.errors import PrunedataError
from prunedata.plan.schedule import Schedule
from prunedata.policies.protocol import Policy
from prunedata.policies.rules import DroppingCount
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.types import Ids

__all__ = [
    "Batch",
    "BrokenContract",
    "Case",
    "Loader",
    "Pass",
    "Record",
    "SkippedClause",
    "States",
    "broken",
    "losses_of",
    "passes",
    "read_pair",
    "restored",
    "resumed",
    "run",
    "shorten",
    "stopped",
    "take",
    "whole_run",
]

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


Batch = tuple[Ids, Ids]  # the ids that came with a batch, and the numbers of the samples in it
States = tuple[dict[str, Any], Any]  # the pruner's, and the loader's or None
Record = Literal["observe", "weigh", "not"]  # who is given the losses


@dataclass(frozen=True)
class Pass:
    """What one pass over the loader delivered.

    Attributes
    ----------
    epoch : Epoch
        The epoch that was open.
    where : str
        Which pass it was, for messages.
    pruner : Pruner
        The run. Every batch was observed.
    batches : list of (ids, numbers)
        The ids that came with each batch, and the numbers of the samples in it; two arrays of int64, shape (n,).
    """

    epoch: Epoch
    where: str
    pruner: Pruner
    batches: list[Batch]

    @property
    def times(self) -> Ids:
        """How often each sample was delivered, shape (samples,)."""
        numbers = [np.empty(0, np.int64), *(numbers for _, numbers in self.batches)]
        return np.bincount(np.concatenate(numbers), minlength=self.epoch.keep.size)


def take(
    case: Case, clause: str, where: str, loader: Iterable[Any], pruner: Pruner, *, record: Record = "observe"
) -> Generator[Batch]:
    """Iterate a loader; record each batch and yield the ids that came with it and the numbers in it.

    The losses are those of the samples in the batch, under the ids that came with it, as in training. They are given
    to the pruner, to the case's ``weigh``, or to nobody.
    """
    try:
        for pair in loader:
            ids, numbers = read_pair(case, where, pair)
            if record == "observe":
                pruner.observe(losses_of(numbers, pruner.next_epoch), ids)
            elif record == "weigh" and case.weigh is not None:
                case.weigh(loader, pair[0], losses_of(numbers, pruner.next_epoch))
            yield ids, numbers
    except (BrokenContract, GeneratorExit):
        raise
    except Exception as error:
        message = f"Expected to iterate {where}. Got {type(error).__name__}: {error}"
        raise BrokenContract(clause, message) from error


def whole_run(case: Case, clause: str) -> Iterator[Pass]:
    """Yield each pass of a whole run, for each number of workers."""
    for workers in case.workers:
        yield from run(case, clause, workers)


def run(
    case: Case, clause: str, workers: int, *, prune: int | None = None, observe_all: int | None = None
) -> Iterator[Pass]:
    """Yield each pass of a whole run, before its epoch ends. Samples that were skipped stop nothing here.

    In epoch number ``observe_all`` the whole data set is observed after the first batch.
    """
    pruner = case.pruner(prune=prune)
    return passes(case, clause, workers, pruner, case.make_loader(pruner, workers), observe_all)


def passes(
    case: Case, clause: str, workers: int, pruner: Pruner, loader: Iterable[Any], observe_all: int | None = None
) -> Iterator[Pass]:
    """Yield each pass of the rest of a run, as :func:`run`."""
    while pruner.next_epoch < pruner.schedule.epochs:
        epoch, batches = pruner.begin_epoch(), []
        where = f"epoch {epoch.number} with {workers} workers"
        for batch in take(case, clause, where, loader, pruner):
            batches.append(batch)
            if epoch.number == observe_all and len(batches) == 1:
                # As one who measures the data set meanwhile, and finds what is kept harder than what is pruned.
                pruner.observe(epoch.keep.astype(np.float64), np.arange(case.samples))
        yield Pass(epoch, where, pruner, batches)
        pruner.skip(pruner.samples)
        pruner.end_epoch()


def stopped(case: Case, workers: int, stop: tuple[int, int]) -> tuple[Ids, States]:
    """Train up to (epoch, batches); return how often that epoch delivered each sample, and what was saved."""
    pruner = case.pruner()
    loader = case.make_loader(pruner, workers)
    while pruner.next_epoch <= stop[0]:
        epoch, batches = pruner.begin_epoch(), []
        where = f"epoch {epoch.number} with {workers} workers, in a run that will be stopped"
        for batch in take(case, "resume", where, loader, pruner):
            batches.append(batch)
            if (epoch.number, len(batches)) == stop:
                state = loader.state_dict() if hasattr(loader, "state_dict") else None
                return Pass(epoch, where, pruner, batches).times, (pruner.state_dict(), state)
        pruner.skip(pruner.samples)
        pruner.end_epoch()
    raise ValueError(f"Expected more than {stop[1]} batches in epoch {stop[0]}. Got fewer: make them smaller.")


def restored(case: Case, workers: int, states: States) -> tuple[Pruner, Any]:
    """Return a new pruner and a new loader that stand where others were saved, the pruner's epoch begun."""
    pruner = case.pruner()
    pruner.load_state_dict(states[0])
    loader: Any = case.make_loader(pruner, workers)
    if states[1] is not None:
        loader.load_state_dict(states[1])
    pruner.begin_epoch()
    return pruner, loader


def resumed(case: Case, workers: int, stop: tuple[int, int], states: States) -> Iterator[Pass]:
    """Yield each pass of the rest of a run; the first is what was left of the epoch that was stopped."""
    try:
        pruner, loader = restored(case, workers, states)
    except PrunedataError as error:
        message = f"Expected a run to go on in the middle of epoch {stop[0]} with {workers} workers. Got: {error}"
        raise BrokenContract("resume", message) from error
    yield from passes(case, "resume", workers, pruner, loader)


def read_pair(case: Case, where: str, pair: Any) -> Batch:
    """The ids that a loader gave with a batch, and the numbers of the samples in it, both int64 of shape (n,)."""
    try:
        if isinstance(pair, Mapping | str):  # a dict of two would unpack into its keys
            raise TypeError
        ids, batch = pair
    except (TypeError, ValueError):
        raise BrokenContract("ids", f"Expected pairs (ids, batch) in {where}. Got a {type(pair).__name__}.") from None
    if case.read is np.asarray and isinstance(batch, Mapping):
        message = f"Expected the numbers of the samples in {where}. Got a dict. Give read=: a batch is a dict."
        raise BrokenContract("ids", message)
    given, held = np.asarray(ids), np.asarray(case.read(batch))
    for name, values in (("ids", given), ("numbers in the batch", held)):
        if values.ndim != 1 or values.shape != held.shape or not np.issubdtype(values.dtype, np.integer):
            raise BrokenContract(
                "ids",
                f"Expected {name} to be {held.size} integers in one dimension, in {where}. "
                f"Got {values.dtype} of shape {values.shape}.",
            )
    if held.size and not 0 <= held.min() <= held.max() < case.samples:
        raise ValueError(f"Expected numbers from 0 to {case.samples - 1} in each batch. Got {held}: see Case.read.")
    return given.astype(np.int64), held.astype(np.int64)
