"""Clauses about the samples that a loader delivers: the right ones, once each, and what it does without end."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np

from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner
from prunedata.testing.case import (
    BrokenContract,
    Case,
    Pass,
    SkippedClause,
    States,
    broken,
    losses_of,
    read_pair,
    restored,
    resumed,
    run,
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
            passes = run(case, "frozen", workers, observe_all=number)
            each = next(islice(passes, number, None))
            _each_once("frozen", each, each.times, "where all were observed once more after the first batch")


def check_resume(case: Case) -> None:
    """Clause ``resume``: a run that stopped in the middle of an epoch goes on with exactly the rest of it.

    And then with the epochs after it. Or, if ``case.resumes`` is false, it is refused by a PrunedataError. If
    ``case.records`` is true, what is saved has all losses, and what is held back is dropped when a state is loaded.
    """
    for workers in case.workers:
        for stop in ((0, 2), (2, 1)):
            delivered, states = stopped(case, workers, stop)
            if case.resumes:
                for each in resumed(case, workers, stop, states):
                    times = each.times + delivered if each.epoch.number == stop[0] else each.times
                    _each_once("resume", each, times, f"in a run resumed after {stop[1]} batches of epoch {stop[0]}")
                if case.records:
                    check_held_back(case, workers, stop)
            else:
                _check_refused(case, workers, stop, states)


def check_empty_worker(case: Case) -> None:
    """Clause ``empty``: a worker whose samples are all pruned gives none, and the others give theirs."""
    for workers in case.workers:
        for each in run(case, "empty", workers, prune=case.samples - 1):
            _each_once("empty", each, each.times, "of which one sample is kept")


def check_endless(case: Case) -> None:
    """Clause ``endless``: a source that never ends is an error, as soon as it gave more samples than the run has.

    Needs ``case.endless``.
    """
    if case.endless is None:
        raise SkippedClause("endless", "it needs endless")
    for workers in case.workers:
        pruner = case.pruner()
        loader = case.endless(pruner, workers)
        epoch = pruner.begin_epoch()
        where = f"epoch {epoch.number} with {workers} workers, over a source without end"
        try:
            delivered = _deliver(case, where, loader, pruner, limit=case.samples * max(1, workers))
            pruner.end_epoch()
        except BrokenContract:
            raise
        except Exception as error:  # a framework may wrap our error in its own
            if isinstance(error, PrunedataError) or "Expected" in str(error):
                continue
            broken("endless", f"a PrunedataError in {where}", f"{type(error).__name__}: {error}")
        broken("endless", f"a PrunedataError in {where}", f"an epoch that ended, with {delivered} samples delivered")


def _deliver(case: Case, where: str, loader: Iterable[Any], pruner: Pruner, limit: int) -> int:
    """How many samples a loader delivers before it ends; more than ``limit`` break the clause."""
    delivered = 0
    for pair in loader:
        ids, numbers = read_pair(case, where, pair)
        pruner.observe(losses_of(numbers, pruner.next_epoch), ids)
        delivered += numbers.size
        if delivered > limit:
            broken("endless", f"a PrunedataError in {where}, after {limit} samples at most", "more samples")
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
        _pruner, loader = restored(case, workers, states)
        next(iter(loader))
    except PrunedataError:
        return
    where = f"with {workers} workers after {stop[1]} batches of epoch {stop[0]}"
    broken("resume", f"a PrunedataError from a run resumed {where}, as resumes=False", "a batch")
