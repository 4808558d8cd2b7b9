"""Clauses about the samples that a loader delivers: the right ones, once each, and what it does without end."""

import numpy as np

from prunedata.errors import PrunedataError
from prunedata.testing.case import (
    BrokenContract,
    Case,
    Pass,
    Run,
    SkippedClause,
    States,
    broken,
    losses_of,
    read_pair,
    restored,
    shorten,
    stopped,
    whole_run,
)
from prunedata.testing.training import check_held_back
from prunedata.types import Ids

__all__ = [
    "check_empty_worker", "check_endless", "check_frozen", "check_ids", "check_masks", "check_once", "check_resume",
]  # fmt: skip


def check_ids(case: Case) -> None:
    """Clause ``ids``: the ids that come with a batch are those of the samples in it."""
    for each in whole_run(case, "ids"):
        for place, (ids, numbers) in enumerate(each.batches):
            if not np.array_equal(ids, numbers):
                broken("ids", f"{shorten(numbers)} as the ids of batch {place} in {each.where}", shorten(ids))


def check_masks(case: Case) -> None:
    """Clause ``masks``: no pass delivers samples that its own epoch prunes, as one under an old mask does."""
    for each in whole_run(case, "masks"):
        pruned = np.flatnonzero(~each.epoch.keep & (each.times > 0))
        if pruned.size:
            broken("masks", f"only what {each.where} keeps", f"the pruned samples {shorten(pruned)}")


def check_once(case: Case) -> None:
    """Clause ``once``: each pass delivers every sample that its epoch keeps, once."""
    for each in whole_run(case, "once"):
        _each_once("once", each, each.times)


def check_frozen(case: Case) -> None:
    """Clause ``frozen``: what is observed while a pass goes on changes nothing about it."""
    for workers in case.workers:
        for number in (0, 2):
            for each in Run(case, "frozen", workers).epochs(number + 1):
                for _ in each.take():
                    if each.epoch.number == number and len(each.batches) == 1:
                        # As one who measures the data set meanwhile, and finds what is kept harder than what is pruned.
                        each.run.pruner.observe(each.epoch.keep.astype(np.float64), np.arange(case.samples))
                if each.epoch.number == number:
                    _each_once("frozen", each, each.times, "where all were observed once more after the first batch")


def check_resume(case: Case) -> None:
    """Clause ``resume``: a run that stopped in the middle of an epoch goes on with exactly the rest of it.

    And then with the epochs after it. Or, if ``case.resumes`` is false, it is refused by a PrunedataError. If
    ``case.records`` is true, what is saved has all losses, and what is held back is dropped when a state is loaded.
    """
    for workers in case.workers:
        for stop in ((0, 2), (2, 1)):
            delivered, states = stopped(case, workers, stop)
            if not case.resumes:
                _check_refused(case, workers, stop, states)
                continue
            try:
                run = restored(case, workers, states)
            except PrunedataError as error:
                message = (
                    f"Expected a run to go on in the middle of epoch {stop[0]} with {workers} workers. Got: {error}"
                )
                raise BrokenContract("resume", message) from error
            for each in run.epochs():
                times = each.whole().times + (delivered if each.epoch.number == stop[0] else 0)
                _each_once("resume", each, times, f"in a run resumed after {stop[1]} batches of epoch {stop[0]}")
            if case.records:
                check_held_back(case, workers, stop)


def check_empty_worker(case: Case) -> None:
    """Clause ``empty``: a worker whose samples are all pruned gives none, and the others give theirs."""
    for workers in case.workers:
        for each in Run(case, "empty", workers, pruner=case.pruner(prune=case.samples - 1)).epochs():
            _each_once("empty", each, each.whole().times, "of which one sample is kept")


def check_endless(case: Case) -> None:
    """Clause ``endless``: a source that never ends is an error, as soon as it gave more samples than the run has.

    Needs ``case.endless``.
    """
    if case.endless is None:
        raise SkippedClause("endless", "it needs endless")
    for workers in case.workers:
        run = Run(case, "endless", workers, make=case.endless, detail="over a source without end")
        each = run.begin()
        where = each.where
        try:
            delivered = _deliver(each, limit=case.samples * max(1, workers))
            run.pruner.end_epoch()
        except BrokenContract:
            raise
        except Exception as error:  # a framework may wrap our error in its own
            if isinstance(error, PrunedataError) or "Expected" in str(error):
                continue
            broken("endless", f"a PrunedataError in {where}", f"{type(error).__name__}: {error}")
        broken("endless", f"a PrunedataError in {where}", f"an epoch that ended, with {delivered} samples delivered")


def _deliver(each: Pass, limit: int) -> int:
    """How many samples a pass delivers before it ends; more than ``limit`` break the clause."""
    delivered = 0
    for pair in each.run.loader:
        ids, numbers = read_pair(each.run.case, each.where, pair)
        each.run.pruner.observe(losses_of(numbers, each.epoch.number), ids)
        delivered += numbers.size
        if delivered > limit:
            broken("endless", f"a PrunedataError in {each.where}, after {limit} samples at most", "more samples")
    return delivered


def _each_once(clause: str, each: Pass, times: Ids, detail: str = "") -> None:
    keep, where = each.epoch.keep, f"{each.where}, {detail}" if detail else each.where
    if np.array_equal(times, keep):
        return
    missing, twice = np.flatnonzero(keep & (times == 0)), np.flatnonzero(times > 1)
    broken(
        clause,
        f"the {each.epoch.kept} kept samples once each in {where}",
        f"{missing.size} of them not at all ({shorten(missing)}), {twice.size} more than once ({shorten(twice)}), "
        f"and {np.count_nonzero(times[~keep])} that are pruned",
    )


def _check_refused(case: Case, workers: int, stop: tuple[int, int], states: States) -> None:
    try:
        next(iter(restored(case, workers, states).loader))
    except PrunedataError:
        return
    where = f"with {workers} workers after {stop[1]} batches of epoch {stop[0]}"
    broken("resume", f"a PrunedataError from a run resumed {where}, as resumes=False", "a batch")
