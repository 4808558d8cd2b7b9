"""Clauses about what an adapter tells the run: loops that were left early, and what the user's settings leave out."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from prunedata.errors import SkippedSamples
from prunedata.policies.rules import Random
from prunedata.run.adapter import together
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.testing.case import Case, Record, SkippedClause, broken, losses_of, take
from prunedata.types import Ids

__all__ = ["check_left_out", "check_reports", "check_truncation"]


class _Loop(NamedTuple):
    """A training loop over the epoch that is open."""

    case: Case
    clause: str
    loader: Iterable[Any]
    pruner: Pruner
    epoch: Epoch
    where: str
    record: Record = "observe"

    def leave_early(self) -> Ids:
        """Train on one batch, and expect that the epoch can't end; return the ids of the batch."""
        pairs = take(self.case, self.clause, self.where, self.loader, self.pruner, record=self.record)
        seen = next(pairs, (np.arange(0),))[0]
        if seen.size >= self.epoch.kept:
            raise ValueError(f"Expected a loader of several batches in {self.where}. Got one: make them smaller.")
        pairs.close()
        try:
            self.pruner.end_epoch()
        except SkippedSamples:
            pass
        else:
            cause = ": count a batch when the loop gets it, not when it is read ahead" if self.record == "not" else ""
            broken(self.clause, f"SkippedSamples in {self.where}, left after one batch", f"an epoch that ended{cause}")
        return seen

    def train(self) -> int:
        """Train on all batches, and expect that the epoch ends; return the number of samples.

        Where nothing is observed, the adapter has to say that the pass is over.
        """
        pairs = take(self.case, self.clause, self.where, self.loader, self.pruner, record=self.record)
        delivered = sum(numbers.size for _, numbers in pairs)
        reported = together(self.epoch.number, (each for one in self.pruner.adapters for each in one.deliveries))
        if self.record == "not" and reported.ended is None:
            broken(self.clause, f"delivery.end() after the last batch of {self.where}", "no such call")
        try:
            self.pruner.end_epoch()
        except SkippedSamples as error:
            told = str(error).removesuffix(".")
            broken(self.clause, f"{self.where} to end after all batches", f"SkippedSamples: {told}")
        return delivered


def check_truncation(case: Case) -> None:
    """Clause ``truncation``: an epoch whose loop was left early can't end without SkippedSamples."""
    for workers in case.workers:
        pruner = case.pruner()
        loader = case.make_loader(pruner, workers)
        while pruner.next_epoch < 3:
            loop = _begin(case, "truncation", loader, pruner, workers)
            seen = loop.leave_early()
            rest = np.setdiff1d(np.flatnonzero(loop.epoch.keep), seen)
            pruner.observe(losses_of(rest, loop.epoch.number), rest)
            pruner.end_epoch()


def check_reports(case: Case) -> None:
    """Clause ``reports``: where no losses are needed, the adapter says how much it delivered.

    Under ``Random()`` an epoch whose loop was left early can't end; one whose loop was run to its end can. Not
    checked if ``case.reports`` is false.
    """
    if not case.reports:
        raise SkippedClause("reports", "reports=False")
    for workers in case.workers:
        pruner = case.pruner(policy=Random())
        loader = case.make_loader(pruner, workers)
        while pruner.next_epoch < 4:
            loop = _begin(case, "reports", loader, pruner, workers, "no losses observed", record="not")
            if loop.epoch.number < 3:
                loop.leave_early()
            loop.train()


def check_left_out(case: Case) -> None:
    """Clause ``left out``: what the user's own settings leave out is no error, and nothing else is skipped.

    Needs ``case.drop_last``.
    """
    if case.drop_last is None:
        raise SkippedClause("left out", "it needs drop_last")
    for workers in case.workers:
        pruner = case.pruner()
        loader, dropped = case.drop_last(pruner, workers), 0
        while pruner.next_epoch < pruner.schedule.epochs:
            loop = _begin(case, "left out", loader, pruner, workers, "with drop_last")
            dropped += loop.epoch.kept - loop.train()
        if not dropped:
            got = "all samples: pass drop_last on to the batches. If you do, take another number of samples"
            broken("left out", f"the loader with drop_last to leave something out, with {workers} workers", got)
        pruner = case.pruner()
        _begin(case, "left out", case.drop_last(pruner, workers), pruner, workers, "with drop_last").leave_early()


def _begin(
    case: Case,
    clause: str,
    loader: Iterable[Any],
    pruner: Pruner,
    workers: int,
    detail: str = "",
    *,
    record: Record = "observe",
) -> _Loop:
    epoch = pruner.begin_epoch()
    where = f"epoch {epoch.number} with {workers} workers" + (f", {detail}" if detail else "")
    return _Loop(case, clause, loader, pruner, epoch, where, record)
