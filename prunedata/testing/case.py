"""An adapter as the clauses see it, what a clause raises, and a run over the adapter's loader."""

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

    def __init__(self, clause: str, expected: str, got: object) -> None:
        super().__init__(f"Clause '{clause}' is broken. Expected {expected}. Got {str(got).removesuffix('.')}.")
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


def shorten(numbers: Any) -> str:
    """The first few numbers, for a message."""
    shown = ", ".join(str(number) for number in numbers[:5])
    return f"{shown}, ..." if len(numbers) > 5 else shown or "none"


class Run:
    """A run over an adapter's loader, as a clause trains it: the clause is broken if the loader raises.

    ``make`` and ``pruner`` stand in the place of ``case.make_loader`` and of a new pruner; ``record`` says whether the
    pruner gets the losses, or the case's ``weigh``, or nobody; ``detail`` is what messages add to an epoch.
    """

    epoch: Epoch
    """The epoch that was begun last."""
    where: str
    """Which epoch that is, for messages."""
    batches: list[tuple[Ids, Ids]]
    """Of each batch of it so far the ids that came with it, and the numbers of the samples in it: int64, shape (n,)."""

    def __init__(
        self,
        case: Case,
        clause: str,
        workers: int,
        *,
        make: Callable[[Pruner, int], Loader] | None = None,
        pruner: Pruner | None = None,
        record: Literal["observe", "weigh", "not"] = "observe",
        detail: str = "",
    ) -> None:
        self.case, self.clause, self.record = case, clause, record
        self.pruner = case.pruner() if pruner is None else pruner
        self.loader: Any = (make or case.make_loader)(self.pruner, workers)
        self._detail = f"with {workers} workers" + (f", {detail}" if detail else "")

    def broken(self, expected: str, got: object) -> NoReturn:
        """Raise :class:`BrokenContract`."""
        raise BrokenContract(self.clause, expected, got)

    def begin(self) -> Epoch:
        """Begin the next epoch, or go on with the open one."""
        self.epoch, self.batches = self.pruner.begin_epoch(), []
        self.where = f"epoch {self.epoch.number} {self._detail}"
        return self.epoch

    def epochs(self, to: int | None = None) -> Iterator[Epoch]:
        """Yield each epoch of the rest of the run, or before epoch `to`, and end it, whatever was skipped."""
        while self.pruner.next_epoch < (self.pruner.schedule.epochs if to is None else to):
            yield self.begin()
            self.pruner.skip(self.pruner.samples)
            self.pruner.end_epoch()

    def take(self) -> Generator[tuple[Ids, Ids]]:
        """Iterate the loader; record each batch and yield the ids that came with it and the numbers in it.

        The losses are those of the samples in the batch, under the ids that came with it, as in training.
        """
        try:
            for pair in self.loader:
                ids, numbers = self.read(pair)
                losses = losses_of(numbers, self.epoch.number)
                if self.record == "observe":
                    self.pruner.observe(losses, ids)
                elif self.record == "weigh" and self.case.weigh is not None:
                    self.case.weigh(self.loader, pair[0], losses)
                self.batches.append((ids, numbers))
                yield ids, numbers
        except BrokenContract:
            raise
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
            raise BrokenContract(self.clause, f"to iterate {self.where}", got) from error

    def whole(self) -> Ids:
        """Take all batches; return how often each sample was delivered in the epoch, shape (samples,)."""
        for _ in self.take():
            pass
        return self.times()

    def times(self) -> Ids:
        """Return how often each sample was delivered in the epoch so far, shape (samples,)."""
        numbers = [np.empty(0, np.int64), *(numbers for _, numbers in self.batches)]
        return np.bincount(np.concatenate(numbers), minlength=self.epoch.keep.size)

    def end(self, expected: str) -> None:
        """End the epoch; if samples are missing, what was ``expected`` is broken."""
        try:
            self.pruner.end_epoch()
        except SkippedSamples as error:
            self.broken(expected, f"SkippedSamples: {error}")

    def read(self, pair: Any) -> tuple[Ids, Ids]:
        """The ids that the loader gave with a batch, and the numbers of the samples in it: int64, shape (n,)."""
        case, where = self.case, self.where
        try:
            if isinstance(pair, Mapping | str):  # a dict of two would unpack into its keys
                raise TypeError
            ids, batch = pair
        except (TypeError, ValueError):
            raise BrokenContract("ids", f"pairs (ids, batch) in {where}", f"a {type(pair).__name__}") from None
        if case.read is np.asarray and isinstance(batch, Mapping):
            got = "a dict. Give read=: a batch is a dict"
            raise BrokenContract("ids", f"the numbers of the samples in {where}", got)
        given, held = np.asarray(ids), np.asarray(case.read(batch))
        for name, values in (("ids", given), ("numbers in the batch", held)):
            if values.ndim != 1 or values.shape != held.shape or not np.issubdtype(values.dtype, np.integer):
                expected = f"{name} to be {held.size} integers in one dimension, in {where}"
                raise BrokenContract("ids", expected, f"{values.dtype} of shape {values.shape}")
        if held.size and not 0 <= held.min() <= held.max() < case.samples:
            raise ValueError(f"Expected numbers from 0 to {case.samples - 1} in each batch. Got {held}: see Case.read.")
        return given.astype(np.int64), held.astype(np.int64)
