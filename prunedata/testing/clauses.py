"""The contract of an adapter: each clause is a function that raises :class:`BrokenContract`."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NoReturn

import numpy as np

from prunedata.errors import PrunedataError, SkippedSamples
from prunedata.run.pruner import Pruner
from prunedata.testing.passes import (
    BrokenContract,
    Case,
    Pass,
    States,
    losses_of,
    restored,
    resumed,
    run,
    stopped,
    take,
)
from prunedata.types import Ids

__all__ = [
    "CLAUSES",
    "check_adapter",
    "check_empty_worker",
    "check_frozen",
    "check_ids",
    "check_masks",
    "check_once",
    "check_parity",
    "check_resume",
    "check_structure",
    "check_truncation",
]


def check_ids(case: Case) -> None:
    """Clause ``ids``: the ids that come with a batch are those of the samples in it."""
    for each in _passes(case, "ids"):
        for place, (ids, numbers) in enumerate(each.batches):
            if not np.array_equal(ids, numbers):
                _broken("ids", f"{_some(numbers)} as the ids of batch {place} in {each.where}", _some(ids))


def check_masks(case: Case) -> None:
    """Clause ``masks``: no pass delivers samples that its own epoch prunes, as one under an old mask does."""
    for each in _passes(case, "masks"):
        pruned = np.flatnonzero(~each.epoch.keep & (each.times > 0))
        if pruned.size:
            _broken("masks", f"only what {each.where} keeps", f"the pruned samples {_some(pruned)}")


def check_once(case: Case) -> None:
    """Clause ``once``: each pass delivers every sample that its epoch keeps, once."""
    for each in _passes(case, "once"):
        _check_once("once", each, each.times)


def check_frozen(case: Case) -> None:
    """Clause ``frozen``: what is observed while a pass goes on changes nothing about it."""
    for workers in case.workers:
        for number in (0, 2):
            passes = run(case, "frozen", workers, meddle=number)
            each = next(islice(passes, number, None))
            _check_once("frozen", each, each.times, "where all were observed once more after the first batch")


def check_resume(case: Case) -> None:
    """Clause ``resume``: a run that stopped in the middle of an epoch goes on with exactly the rest of it.

    And then with the epochs after it. Or, if ``case.resumes`` is false, it is refused by a PrunedataError.
    """
    for workers in case.workers:
        for stop in ((0, 2), (2, 1)):
            delivered, states = stopped(case, workers, stop)
            if case.resumes:
                for each in resumed(case, workers, stop, states):
                    times = each.times + delivered if each.epoch.number == stop[0] else each.times
                    _check_once("resume", each, times, f"in a run resumed after {stop[1]} batches of epoch {stop[0]}")
            else:
                _check_refused(case, workers, stop, states)


def check_truncation(case: Case) -> None:
    """Clause ``truncation``: an epoch whose loop was left early can't end without SkippedSamples."""
    for workers in case.workers:
        pruner = case.pruner()
        loader = case.make_loader(pruner, workers)
        while pruner.next_epoch < 3:
            epoch = pruner.begin_epoch()
            where = f"epoch {epoch.number} with {workers} workers"
            pairs = take(case, "truncation", where, loader, pruner)
            seen = next(pairs, (np.arange(0),))[0]
            if seen.size >= epoch.kept:
                raise ValueError(f"Expected a loader of several batches in {where}. Got one: make them smaller.")
            pairs.close()  # type: ignore[attr-defined]
            try:
                pruner.end_epoch()
            except SkippedSamples:
                rest = np.setdiff1d(np.flatnonzero(epoch.keep), seen)
                pruner.observe(rest, losses_of(rest, epoch.number))
                pruner.end_epoch()
            else:
                _broken("truncation", f"SkippedSamples in {where}, left after one batch", "an epoch that ended")


def check_structure(case: Case) -> None:
    """Clause ``structure``: a batch is built as the user's own loader builds it. Needs ``case.plain``."""
    if case.plain is None:
        return
    for workers in case.workers:
        expected = _structure(next(iter(case.plain(workers))))
        pruner = case.pruner()
        pruner.begin_epoch()
        got = _structure(next(iter(case.make_loader(pruner, workers)))[1])
        if got != expected:
            _broken("structure", f"batches like {expected} with {workers} workers", got)


def check_parity(case: Case) -> None:
    """Clause ``parity``: masks and counts are those of the core alone, fed with the same batches."""
    for workers in case.workers:
        alone = case.pruner()
        passes = list(_compared(case, alone, workers))
        fed, got = ([record["observed"] for record in each.history] for each in (alone, passes[-1].pruner))
        if fed != got:
            _broken("parity", f"{fed} losses recorded, as many as were observed, with {workers} workers", str(got))


def check_empty_worker(case: Case) -> None:
    """Clause ``empty``: a worker whose samples are all pruned gives none, and the others give theirs."""
    for workers in case.workers:
        for each in run(case, "empty", workers, prune=case.samples - 1):
            _check_once("empty", each, each.times, "of which one sample is kept")


CLAUSES: Mapping[str, Callable[[Case], None]] = {
    "ids": check_ids,
    "masks": check_masks,
    "once": check_once,
    "frozen": check_frozen,
    "resume": check_resume,
    "truncation": check_truncation,
    "structure": check_structure,
    "parity": check_parity,
    "empty": check_empty_worker,
}
"""Each clause by its name, for ``pytest.mark.parametrize``."""


def check_adapter(
    make_loader: Callable[[Pruner, int], Iterable[tuple[Any, Any]]],
    *,
    samples: int = 61,
    workers: tuple[int, ...] = (0, 2),
    read: Callable[[Any], Any] = np.asarray,
    plain: Callable[[int], Iterable[Any]] | None = None,
    resumes: bool = True,
) -> None:
    """Hold an adapter to every clause of its contract.

    Parameters
    ----------
    make_loader : callable
        ``make_loader(pruner, workers)`` returns what a user iterates in each epoch of ``pruner``: an iterable of
        ``(ids, batch)`` over a data set of ``pruner.samples`` samples, several batches an epoch.
    samples, workers, read, plain, resumes
        As in :class:`Case`.

    Raises
    ------
    BrokenContract
        An AssertionError that names the first clause that is broken, what was expected, and what came.
    """
    case = Case(make_loader, samples, workers, read, plain, resumes)
    for check in CLAUSES.values():
        check(case)


def _passes(case: Case, clause: str) -> Iterator[Pass]:
    for workers in case.workers:
        yield from run(case, clause, workers)


def _check_once(clause: str, each: Pass, times: Ids, told: str = "") -> None:
    keep, where = each.epoch.keep, f"{each.where}, {told}" if told else each.where
    if np.array_equal(times, keep):
        return
    missing, twice = np.flatnonzero(keep & (times == 0)), np.flatnonzero(times > 1)
    _broken(
        clause,
        f"the {each.epoch.kept} kept samples once each in {where}",
        f"{missing.size} of them not at all ({_some(missing)}), {twice.size} more than once ({_some(twice)}), "
        f"and {np.count_nonzero(times[~keep])} that are pruned",
    )


def _check_refused(case: Case, workers: int, stop: tuple[int, int], states: States) -> None:
    try:
        _pruner, loader = restored(case, workers, states)
        next(iter(loader))
    except PrunedataError:
        return
    where = f"with {workers} workers after {stop[1]} batches of epoch {stop[0]}"
    _broken("resume", f"a PrunedataError from a run resumed {where}, as resumes=False", "a batch")


def _compared(case: Case, alone: Pruner, workers: int) -> Iterator[Pass]:
    """Feed ``alone`` what each pass delivered, and compare mask and counts."""
    for each in run(case, "parity", workers):
        epoch = alone.begin_epoch()
        if not np.array_equal(epoch.keep, each.epoch.keep):
            _broken("parity", f"the mask of the core alone in {each.where}", "another")
        for _, numbers in each.batches:
            alone.observe(numbers, losses_of(numbers, epoch.number))
        wrong = np.flatnonzero(alone.counts != each.pruner.counts)
        if wrong.size:
            _broken("parity", f"the core's counts after {each.where}", f"others for the samples {_some(wrong)}")
        alone.excuse(alone.samples)
        alone.end_epoch()
        yield each


def _structure(batch: Any) -> str:
    """How a batch is built, but for the length of its arrays."""
    if isinstance(batch, Mapping):
        return "{" + ", ".join(f"{key!r}: {_structure(value)}" for key, value in batch.items()) + "}"
    if isinstance(batch, list | tuple):
        parts = [_structure(value) for value in batch]
        same = f"{len(parts)} times {parts[0]}" if len(set(parts)) == 1 else ", ".join(parts)
        return f"{type(batch).__name__}({same})"
    if hasattr(batch, "dtype") and hasattr(batch, "shape"):
        return f"{type(batch).__name__} of {batch.dtype} in {len(batch.shape)} dimensions"
    return type(batch).__name__


def _broken(clause: str, expected: str, got: str) -> NoReturn:
    raise BrokenContract(clause, f"Expected {expected}. Got {got}.")


def _some(numbers: Any) -> str:
    shown = ", ".join(str(number) for number in numbers[:5])
    return f"{shown}, ..." if len(numbers) > 5 else shown or "none"
