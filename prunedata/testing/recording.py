"""Clauses about adapters that record the losses themselves: all, as they are, and in time."""

from itertools import islice

import numpy as np

from prunedata.errors import SkippedSamples
from prunedata.run.pruner import Pruner
from prunedata.testing.case import Case, SkippedClause, broken, losses_of, shorten
from prunedata.testing.passes import take

__all__ = ["check_held_back", "check_records"]


def check_records(case: Case) -> None:
    """Clause ``records``: what ``case.weigh`` is given is recorded, as a Pruner without the adapter records it.

    Needs ``case.weigh`` and ``case.records``.
    """
    if case.weigh is None or not case.records:
        raise SkippedClause("records", "it needs weigh and records=True")
    for workers in case.workers:
        alone, pruner = case.pruner(), case.pruner()
        loader = case.make_loader(pruner, workers)
        while pruner.next_epoch < pruner.schedule.epochs:
            epoch = pruner.begin_epoch()
            alone.begin_epoch()
            where = f"epoch {epoch.number} with {workers} workers"
            for _, numbers in take(case, "records", where, loader, pruner, record="weigh"):
                alone.observe(losses_of(numbers, epoch.number), numbers)
            _compare(alone, pruner, where)


def _compare(alone: Pruner, pruner: Pruner, where: str) -> None:
    """End the epoch of both runs, and compare what they have recorded."""
    alone.skip(alone.samples)
    alone.end_epoch()
    try:
        pruner.end_epoch()
    except SkippedSamples as error:
        told = str(error).removesuffix(".")
        broken("records", f"all losses of {where} to be recorded when it ends", f"SkippedSamples: {told}")
    expected, got = (run.history[-1]["observed"] for run in (alone, pruner))
    if expected != got:
        broken("records", f"{expected} losses recorded in {where}", got)
    for name in ("visits", "hits"):
        wrong = np.flatnonzero(getattr(alone, name) != getattr(pruner, name))
        if wrong.size:
            fix = "record each batch by a call of its own, with the losses as they are"
            broken("records", f"the {name} of {where} as without the adapter", f"others for {shorten(wrong)}: {fix}")


def check_held_back(case: Case, workers: int, stop: tuple[int, int]) -> None:
    """A part of ``resume``: losses held back are in what is saved, and are gone when another state is loaded."""
    pruner = case.pruner()
    loader = case.make_loader(pruner, workers)
    while True:
        epoch = pruner.begin_epoch()
        where = f"epoch {epoch.number} with {workers} workers"
        batches = take(case, "resume", where, loader, pruner, record="weigh")
        if epoch.number == stop[0]:
            break
        for _ in batches:
            pass
        pruner.skip(pruner.samples)
        pruner.end_epoch()
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
    expected, got = (run.begin_epoch().remaining for run in (again, pruner))
    wrong = np.flatnonzero(expected != got)
    if wrong.size:
        broken(
            "resume",
            f"losses that are held back to be dropped when a state is loaded, in {where}",
            f"those of the samples {shorten(wrong)}, recorded: override forget",
        )
