"""Clauses about what an adapter tells the run: loops that were left early, and what the user's settings leave out."""

import numpy as np

from prunedata.errors import SkippedSamples
from prunedata.policies.rules import Random
from prunedata.run.adapter import together
from prunedata.testing.case import Case, Pass, Run, SkippedClause, broken, losses_of
from prunedata.types import Ids

__all__ = ["check_left_out", "check_reports", "check_truncation"]


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
    """Clause ``left out``: what the user's own settings leave out is no error, and nothing else is skipped.

    Needs ``case.drop_last``.
    """
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
    try:
        run.pruner.end_epoch()
    except SkippedSamples as error:
        told = str(error).removesuffix(".")
        broken(run.clause, f"{each.where} to end after all batches", f"SkippedSamples: {told}")
    return delivered
