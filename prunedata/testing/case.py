"""An adapter as the clauses see it, what a clause raises, and a run over the adapter's loader, pass by pass."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn
from unittest import SkipTest

import numpy as np
import numpy.typing as npt

from prunedata.errors import SkippedSamples
from prunedata.plan.schedule import Schedule
from prunedata.policies.protocol import Policy
from prunedata.policies.rules import DroppingCount
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.types import Ids

Loader = Iterable[tuple[Any, Any]]
# Whole, whole, then pruned twice in a row, and so on: lengths go down and up again, and masks change each time.
SCHEDULE = Schedule(6, window=6, start=1, block=3, pruned_per_block=2)


class BrokenContract(AssertionError):
    """An adapter breaks a clause of its contract: ``clause``, as in :data:`CLAUSES`."""

    def __init__(self, clause: str, message: str) -> None:
        super().__init__(f"Clause '{clause}' is broken. {message}")
        self.clause = clause


class SkippedClause(SkipTest):
    """A clause was not checked: pytest and unittest show the test as skipped.

    ``clause`` is which, as in :data:`CLAUSES`, and ``why`` the option that it lacks.
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


class Run:
    """A run over an adapter's loader, as a clause trains it: the clause is broken if the loader raises.

    ``make`` and ``pruner`` stand in the place of ``case.make_loader`` and of a new pruner; ``record`` says whether the
    pruner gets the losses, or the case's ``weigh``, or nobody; ``detail`` is what messages add to an epoch.
    """

    def __init__(
        self,
        case: Case,
        clause: str,
        workers: int,
        *,
        make: Callable[[Pruner, int], Loader] | None = None,
        pruner: Pruner | None = None,
        record: Record = "observe",
        detail: str = "",
    ) -> None:
        self.case, self.clause, self.workers, self.record, self.detail = case, clause, workers, record, detail
        self.pruner = case.pruner() if pruner is None else pruner
        self.loader: Any = (make or case.make_loader)(self.pruner, workers)

    def begin(self) -> "Pass":
        """Begin the next epoch, or go on with the open one."""
        epoch = self.pruner.begin_epoch()
        where = f"epoch {epoch.number} with {self.workers} workers" + (f", {self.detail}" if self.detail else "")
        return Pass(self, epoch, where, [])

    def epochs(self, to: int | None = None) -> Iterator["Pass"]:
        """Yield each pass of the rest of the run, or before epoch `to`, and end its epoch, whatever was skipped."""
        while self.pruner.next_epoch < (self.pruner.schedule.epochs if to is None else to):
            yield self.begin()
            self.pruner.skip(self.pruner.samples)
            self.pruner.end_epoch()


@dataclass(frozen=True)
class Pass:
    """One pass over the loader."""

    run: Run
    epoch: Epoch
    where: str
    """Which pass it is, for messages."""
    batches: list[Batch]
    """Of each batch so far the ids that came with it, and the numbers of the samples in it: int64, shape (n,)."""

    def take(self) -> Generator[Batch]:
        """Iterate the loader; record each batch and yield the ids that came with it and the numbers in it.

        The losses are those of the samples in the batch, under the ids that came with it, as in training.
        """
        case, loader = self.run.case, self.run.loader
        try:
            for pair in loader:
                ids, numbers = read_pair(case, self.where, pair)
                losses = losses_of(numbers, self.epoch.number)
                if self.run.record == "observe":
                    self.run.pruner.observe(losses, ids)
                elif self.run.record == "weigh" and case.weigh is not None:
                    case.weigh(loader, pair[0], losses)
                self.batches.append((ids, numbers))
                yield ids, numbers
        except (BrokenContract, GeneratorExit):
            raise
        except Exception as error:
            message = f"Expected to iterate {self.where}. Got {type(error).__name__}: {error}"
            raise BrokenContract(self.run.clause, message) from error

    def whole(self) -> "Pass":
        """Take all batches; return the pass."""
        for _ in self.take():
            pass
        return self

    def end(self, expected: str) -> None:
        """End the epoch; if samples are missing, what was ``expected`` is broken."""
        try:
            self.run.pruner.end_epoch()
        except SkippedSamples as error:
            broken(self.run.clause, expected, f"SkippedSamples: {str(error).removesuffix('.')}")

    @property
    def times(self) -> Ids:
        """How often each sample was delivered, shape (samples,)."""
        numbers = [np.empty(0, np.int64), *(numbers for _, numbers in self.batches)]
        return np.bincount(np.concatenate(numbers), minlength=self.epoch.keep.size)


def whole_run(case: Case, clause: str, **options: Any) -> Iterator[Pass]:
    """Yield each pass of a whole run, its batches taken, for each number of workers."""
    for workers in case.workers:
        for each in Run(case, clause, workers, **options).epochs():
            yield each.whole()


def stopped(case: Case, workers: int, stop: tuple[int, int]) -> tuple[Ids, States]:
    """Train up to (epoch, batches); return how often that epoch delivered each sample, and what was saved."""
    run = Run(case, "resume", workers, detail="in a run that will be stopped")
    for each in run.epochs(stop[0] + 1):
        for _ in each.take():
            if (each.epoch.number, len(each.batches)) == stop:
                state = run.loader.state_dict() if hasattr(run.loader, "state_dict") else None
                return each.times, (run.pruner.state_dict(), state)
    raise ValueError(f"Expected more than {stop[1]} batches in epoch {stop[0]}. Got fewer: make them smaller.")


def restored(case: Case, workers: int, states: States) -> Run:
    """Return a new run with a new loader that stand where others were saved, the epoch begun."""
    pruner = case.pruner()
    pruner.load_state_dict(states[0])
    run = Run(case, "resume", workers, pruner=pruner)
    if states[1] is not None:
        run.loader.load_state_dict(states[1])
    pruner.begin_epoch()
    return run


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
