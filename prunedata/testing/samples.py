"""Clauses about the samples that a loader delivers, and about what the adapter tells the run of them."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from prunedata.errors import PrunedataError, SkippedSamples
from prunedata.policies.rules import Random
from prunedata.run.adapter import together
from prunedata.testing.case import BrokenContract, Case, Run, SkippedClause, losses_of, shorten
from prunedata.types import Ids

States = tuple[dict[str, Any], Any]  # the pruner's, and the loader's or None


def check_ids(case: Case) -> None:
    """Clause ``ids``: the ids that come with a batch are those of the samples in it."""
    for run in _epochs(case, "ids"):
        for place, (ids, numbers) in enumerate(run.batches):
            if not np.array_equal(ids, numbers):
                run.broken(f"{shorten(numbers)} as the ids of batch {place} in {run.where}", shorten(ids))


def check_masks(case: Case) -> None:
    """Clause ``masks``: no pass delivers samples that its own epoch prunes, as one under an old mask does."""
    for run in _epochs(case, "masks"):
        pruned = np.flatnonzero(~run.epoch.keep & (run.times() > 0))
        if pruned.size:
            run.broken(f"only what {run.where} keeps", f"the pruned samples {shorten(pruned)}")


def check_once(case: Case) -> None:
    """Clause ``once``: each pass delivers every sample that its epoch keeps, once."""
    for run in _epochs(case, "once"):
        _each_once(run, run.times())


def _epochs(case: Case, clause: str) -> Iterator[Run]:
    """Yield a whole run in each of its epochs, the batches taken, for each number of workers."""
    for workers in case.workers:
        run = Run(case, clause, workers)
        for _ in run.epochs():
            run.whole()
            yield run


def check_frozen(case: Case) -> None:
    """Clause ``frozen``: what is observed while a pass goes on changes nothing about it."""
    for workers in case.workers:
        for number in (0, 2):
            run = Run(case, "frozen", workers)
            for epoch in run.epochs(number + 1):
                for _ in run.take():
                    if epoch.number == number and len(run.batches) == 1:
                        # As one who measures the data set meanwhile, and finds what is kept harder than what is pruned.
                        run.pruner.observe(epoch.keep.astype(np.float64), np.arange(case.samples))
                if epoch.number == number:
                    _each_once(run, run.times(), "where all were observed once more after the first batch")


def check_resume(case: Case) -> None:
    """Clause ``resume``: a run that stopped in the middle of an epoch goes on with exactly the rest of it.

    And then with the epochs after it. Or, if ``case.resumes`` is false, it is refused by a PrunedataError. If
    ``case.records`` is true, what is saved has all losses, and what is held back is dropped when a state is loaded.
    """
    for workers in case.workers:
        for number, batches in ((0, 2), (2, 1)):
            delivered, states = _stopped(case, workers, number, batches)
            if not case.resumes:
                where = f"with {workers} workers after {batches} batches of epoch {number}"
                _check_refused(case, workers, states, where)
                continue
            try:
                run = _restored(case, workers, states)
            except PrunedataError as error:
                expected = f"a run to go on in the middle of epoch {number} with {workers} workers"
                raise BrokenContract("resume", expected, error) from error
            for epoch in run.epochs():
                times = run.whole() + (delivered if epoch.number == number else 0)
                _each_once(run, times, f"in a run resumed after {batches} batches of epoch {number}")
            if case.records:
                _check_held_back(case, workers, number, batches)


def _stopped(case: Case, workers: int, number: int, batches: int) -> tuple[Ids, States]:
    """Train up to some batches of an epoch; return how often it delivered each sample, and what was saved."""
    run = Run(case, "resume", workers, detail="in a run that will be stopped")
    for epoch in run.epochs(number + 1):
        for _ in run.take():
            if (epoch.number, len(run.batches)) == (number, batches):
                state = run.loader.state_dict() if hasattr(run.loader, "state_dict") else None
                return run.times(), (run.pruner.state_dict(), state)
    raise ValueError(f"Expected more than {batches} batches in epoch {number}. Got fewer: make them smaller.")


def _restored(case: Case, workers: int, states: States) -> Run:
    """Return a new run with a new loader that stand where others were saved, the epoch begun."""
    pruner = case.pruner()
    pruner.load_state_dict(states[0])
    run = Run(case, "resume", workers, pruner=pruner)
    if states[1] is not None:
        run.loader.load_state_dict(states[1])
    pruner.begin_epoch()
    return run


def _check_refused(case: Case, workers: int, states: States, where: str) -> None:
    try:
        next(iter(_restored(case, workers, states).loader))
    except PrunedataError:
        return
    raise BrokenContract("resume", f"a PrunedataError from a run resumed {where}, as resumes=False", "a batch")


def _check_held_back(case: Case, workers: int, number: int, batches: int) -> None:
    """A part of ``resume``: losses held back are in what is saved, and are gone when another state is loaded."""
    run = Run(case, "resume", workers, record="weigh")
    pruner = run.pruner
    for _ in run.epochs(number):
        run.whole()
    run.begin()
    rest = run.take()
    seen = np.concatenate([numbers for _, numbers in islice(rest, batches)])
    state, again = pruner.state_dict(), case.pruner()
    again.load_state_dict(state)
    lost = seen[again.begin_epoch().remaining[seen]]
    if lost.size:
        whole = f"what is saved within {run.where} to have all losses so far"
        run.broken(whole, f"none of the samples {shorten(lost)}: override held_back")
    next(rest, None)  # its losses are held back when the state is loaded
    rest.close()
    pruner.load_state_dict(state)
    pruner.begin_epoch()
    _ = pruner.counts  # has everything handed over
    expected, got = (one.begin_epoch().remaining for one in (again, pruner))
    wrong = np.flatnonzero(expected != got)
    if wrong.size:
        held = f"losses that are held back to be dropped when a state is loaded, in {run.where}"
        run.broken(held, f"those of the samples {shorten(wrong)}, recorded: override forget")


def check_empty_worker(case: Case) -> None:
    """Clause ``empty``: a worker whose samples are all pruned gives none, and the others give theirs."""
    for workers in case.workers:
        run = Run(case, "empty", workers, pruner=case.pruner(prune=case.samples - 1))
        for _ in run.epochs():
            _each_once(run, run.whole(), "of which one sample is kept")


def _each_once(run: Run, times: Ids, detail: str = "") -> None:
    keep, where = run.epoch.keep, f"{run.where}, {detail}" if detail else run.where
    if np.array_equal(times, keep):
        return
    missing, twice = np.flatnonzero(keep & (times == 0)), np.flatnonzero(times > 1)
    run.broken(
        f"the {run.epoch.kept} kept samples once each in {where}",
        f"{missing.size} of them not at all ({shorten(missing)}), {twice.size} more than once ({shorten(twice)}), "
        f"and {np.count_nonzero(times[~keep])} that are pruned",
    )


def check_endless(case: Case) -> None:
    """Clause ``endless``: a source without end is an error once it gave too many samples. Needs ``case.endless``."""
    if case.endless is None:
        raise SkippedClause("endless", "it needs endless")
    for workers in case.workers:
        run = Run(case, "endless", workers, make=case.endless, detail="over a source without end")
        epoch, delivered, limit = run.begin(), 0, case.samples * max(1, workers)
        expected = f"a PrunedataError in {run.where}"
        try:
            for pair in run.loader:
                ids, numbers = run.read(pair)
                run.pruner.observe(losses_of(numbers, epoch.number), ids)
                delivered += numbers.size
                if delivered > limit:
                    run.broken(f"{expected}, after {limit} samples at most", "more samples")
            run.pruner.end_epoch()
        except BrokenContract:
            raise
        except Exception as error:  # a framework may wrap our error in its own
            if isinstance(error, PrunedataError) or "Expected" in str(error):
                continue
            run.broken(expected, f"{type(error).__name__}: {error}")
        run.broken(expected, f"an epoch that ended, with {delivered} samples delivered")


def check_truncation(case: Case) -> None:
    """Clause ``truncation``: an epoch whose loop was left early can't end without SkippedSamples."""
    for workers in case.workers:
        run = Run(case, "truncation", workers)
        for epoch in run.epochs(3):
            rest = np.setdiff1d(np.flatnonzero(epoch.keep), _leave_early(run))
            run.pruner.observe(losses_of(rest, epoch.number), rest)


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
            if run.begin().number < 3:
                _leave_early(run)
            _train(run)


def check_left_out(case: Case) -> None:
    """Clause ``left out``: only what the user's own settings leave out is no error. Needs ``case.drop_last``."""
    if case.drop_last is None:
        raise SkippedClause("left out", "it needs drop_last")
    for workers in case.workers:
        run, early = (Run(case, "left out", workers, make=case.drop_last, detail="with drop_last") for _ in range(2))
        dropped = 0
        while run.pruner.next_epoch < run.pruner.schedule.epochs:
            dropped += run.begin().kept - _train(run)
        if not dropped:
            got = "all samples: pass drop_last on to the batches. If you do, take another number of samples"
            run.broken(f"the loader with drop_last to leave something out, with {workers} workers", got)
        early.begin()
        _leave_early(early)


def _leave_early(run: Run) -> Ids:
    """Train on one batch, and expect that the epoch can't end; return the ids of the batch."""
    pairs = run.take()
    seen = next(pairs, (np.arange(0),))[0]
    if seen.size >= run.epoch.kept:
        raise ValueError(f"Expected a loader of several batches in {run.where}. Got one: make them smaller.")
    pairs.close()
    try:
        run.pruner.end_epoch()
    except SkippedSamples:
        pass
    else:
        cause = ": count a batch when the loop gets it, not when it is read ahead" if run.record == "not" else ""
        run.broken(f"SkippedSamples in {run.where}, left after one batch", f"an epoch that ended{cause}")
    return seen


def _train(run: Run) -> int:
    """Train on all batches, and expect that the epoch ends; return the number of samples.

    Where nothing is observed, the adapter has to say that the pass is over.
    """
    delivered = sum(numbers.size for _, numbers in run.take())
    reported = together(run.epoch.number, (report for one in run.pruner.adapters for report in one.deliveries))
    if run.record == "not" and reported.ended is None:
        run.broken(f"delivery.end() after the last batch of {run.where}", "no such call")
    run.end(f"{run.where} to end after all batches")
    return delivered
