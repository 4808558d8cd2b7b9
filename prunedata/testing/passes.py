"""What the clauses share: a run over an adapter's loader, and what each pass of it delivered."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from prunedata.errors import PrunedataError
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.testing.case import BrokenContract, Case, losses_of
from prunedata.types import Ids

__all__ = [
    "Batch",
    "Pass",
    "Record",
    "States",
    "passes",
    "read_pair",
    "restored",
    "resumed",
    "run",
    "stopped",
    "take",
    "whole_run",
]

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
