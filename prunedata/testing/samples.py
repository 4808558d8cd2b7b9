"""Clauses about the samples that a loader delivers, and about what the adapter tells the run of them."""

from itertools import islice

import numpy as np

from prunedata.errors import PrunedataError, SkippedSamples
from prunedata.policies.rules import Random
from prunedata.run.adapter import together
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
from prunedata.types import Ids


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
                _check_held_back(case, workers, stop)


def check_empty_worker(case: Case) -> None:
    """Clause ``empty``: a worker whose samples are all pruned gives none, and the others give theirs."""
    for workers in case.workers:
        for each in Run(case, "empty", workers, pruner=case.pruner(prune=case.samples - 1)).epochs():
            _each_once("empty", each, each.whole().times, "of which one sample is kept")


def check_endless(case: Case) -> None:
    """Clause ``endless``: a source without end is an error once it gave too many samples. Needs ``case.endless``."""
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


def _check_held_back(case: Case, workers: int, stop: tuple[int, int]) -> None:
    """A part of ``resume``: losses held back are in what is saved, and are gone when another state is loaded."""
    run = Run(case, "resume", workers, record="weigh")
    for each in run.epochs(stop[0]):
        each.whole()
    each, pruner = run.begin(), run.pruner
    where, batches = each.where, each.take()
    seen = np.concatenate([numbers for _, numbers in islice(batches, stop[1])])
    state, again = pruner.state_dict(), case.pruner()
    again.load_state_dict(state)
    lost = seen[again.begin_epoch().remaining[seen]]
    if lost.size:
        broken(
            "resume",
            f"what is saved within {where} to have all losses so far",
            f"none of the samples {shorten(lost)}: override held_back",
        )
    next(batches, None)  # its losses are held back when the state is loaded
    batches.close()
    pruner.load_state_dict(state)
    pruner.begin_epoch()
    _ = pruner.counts  # has everything handed over
    expected, got = (one.begin_epoch().remaining for one in (again, pruner))
    wrong = np.flatnonzero(expected != got)
    if wrong.size:
        broken(
            "resume",
            f"losses that are held back to be dropped when a state is loaded, in {where}",
            f"those of the samples {shorten(wrong)}, recorded: override forget",
        )


def check_truncation(case: Case) -> None:
    """Clause ``truncation``: an epoch whose loop was left early can't end without SkippedSamples."""
    for workers in case.workers:
        run = Run(case, "truncation", workers)
        for each in run.epochs(3):
            rest = np.setdiff1d(np.flatnonzero(each.epoch.keep), _leave_early(each))
            run.pruner.observe(losses_of(rest, each.epoch.number), rest)


def check_reports(case: Case) -> None:
    """Clause ``reports``: where no losses are needed, the adapter says how much it delivered.

    Under ``Random()`` an epoch whose loop was left early can't end; one whose loop was run to its end can. Not
    checked if ``case.reports`` is false.
    """
    if not case.reports:
        raise SkippedClause("reports", "reports=False")
    for workers in case.workers:
        pruner = case.pruner(policy=Random())
        run = Run(case, "reports", workers, pruner=pruner, record="not", detail="no losses observed")
        while pruner.next_epoch < 4:
            each = run.begin()
            if each.epoch.number < 3:
                _leave_early(each)
            _train(each)


def check_left_out(case: Case) -> None:
    """Clause ``left out``: only what the user's own settings leave out is no error. Needs ``case.drop_last``."""
    if case.drop_last is None:
        raise SkippedClause("left out", "it needs drop_last")
    for workers in case.workers:
        run, early = (Run(case, "left out", workers, make=case.drop_last, detail="with drop_last") for _ in range(2))
        dropped = 0
        while run.pruner.next_epoch < run.pruner.schedule.epochs:
            each = run.begin()
            dropped += each.epoch.kept - _train(each)
        if not dropped:
            got = "all samples: pass drop_last on to the batches. If you do, take another number of samples"
            broken("left out", f"the loader with drop_last to leave something out, with {workers} workers", got)
        _leave_early(early.begin())


def _leave_early(each: Pass) -> Ids:
    """Train on one batch, and expect that the epoch can't end; return the ids of the batch."""
    run, pairs = each.run, each.take()
    seen = next(pairs, (np.arange(0),))[0]
    if seen.size >= each.epoch.kept:
        raise ValueError(f"Expected a loader of several batches in {each.where}. Got one: make them smaller.")
    pairs.close()
    try:
        run.pruner.end_epoch()
    except SkippedSamples:
        pass
    else:
        cause = ": count a batch when the loop gets it, not when it is read ahead" if run.record == "not" else ""
        broken(run.clause, f"SkippedSamples in {each.where}, left after one batch", f"an epoch that ended{cause}")
    return seen


def _train(each: Pass) -> int:
    """Train on all batches, and expect that the epoch ends; return the number of samples.

    Where nothing is observed, the adapter has to say that the pass is over.
    """
    run, delivered = each.run, sum(numbers.size for _, numbers in each.take())
    reported = together(each.epoch.number, (report for one in run.pruner.adapters for report in one.deliveries))
    if run.record == "not" and reported.ended is None:
        broken(run.clause, f"delivery.end() after the last batch of {each.where}", "no such call")
    each.end(f"{each.where} to end after all batches")
    return delivered
