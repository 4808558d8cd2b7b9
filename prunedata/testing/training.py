"""Clauses about training: the user's own batches, weighted losses, the core's counts, and what an adapter records."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from prunedata.errors import SkippedSamples
from prunedata.policies.rules import LossRanked
from prunedata.run.pruner import Pruner
from prunedata.testing.case import Case, Loader, Pass, Run, SkippedClause, broken, losses_of, read_pair, shorten

__all__ = [
    "check_attached_once",
    "check_held_back",
    "check_parity",
    "check_records",
    "check_structure",
    "check_weights",
]


def check_structure(case: Case) -> None:
    """Clause ``structure``: a batch is built as the user's own loader builds it. Needs ``case.plain``."""
    if case.plain is None:
        raise SkippedClause("structure", "it needs plain")
    for workers in case.workers:
        expected = _structure(next(iter(case.plain(workers))))
        run = Run(case, "structure", workers)
        run.begin()
        got = _structure(next(iter(run.loader))[1])
        if got != expected:
            broken("structure", f"batches like {expected} with {workers} workers", got)


def check_weights(case: Case) -> None:
    """Clause ``weights``: under a policy that weighs, the loop trains on the mean of the weighted losses.

    Recorded are the losses as they are. Needs ``case.weigh``.
    """
    for workers in case.workers:
        run = Run(case, "weights", workers, pruner=case.pruner(policy=LossRanked()))
        if case.weigh is None:
            if hasattr(run.loader, "observe"):
                raise ValueError("Expected Case.weigh, as the loader has observe(). Got none.")
            raise SkippedClause("weights", "it needs weigh")
        for each in run.epochs():
            _check_weighted(each, case.weigh)


def check_parity(case: Case) -> None:
    """Clause ``parity``: masks and counts are those of the core alone, fed with the same batches."""
    for workers in case.workers:
        alone, run = case.pruner(), Run(case, "parity", workers)
        for each in run.epochs():
            _compare_counts(alone, each.whole())
        expected, got = ([record["observed"] for record in one.history] for one in (alone, run.pruner))
        if expected != got:
            broken("parity", f"{expected} losses recorded, as many as were observed, with {workers} workers", got)


def check_attached_once(case: Case) -> None:
    """Clause ``attached once``: a run for which the loader is made twice goes as if it had been made once."""

    def twice(pruner: Pruner, workers: int) -> Loader:
        case.make_loader(pruner, workers)
        once = len(pruner.adapters)
        loader = case.make_loader(pruner, workers)
        if len(pruner.adapters) != once:
            names = ", ".join(type(adapter).__name__ for adapter in pruner.adapters)
            broken("attached once", f"{once} adapters after the loader was made again: give yours a key", names)
        return loader

    for workers in case.workers:
        once, again = (_amounts(each, workers) for each in (case, replace(case, make_loader=twice)))
        if once != again:
            broken("attached once", f"(delivered, recorded) to be {once} in each epoch with {workers} workers", again)


def _amounts(case: Case, workers: int) -> list[tuple[int, int]]:
    """How many samples are delivered, and how many losses recorded, in each epoch of a run."""
    run = Run(case, "attached once", workers)
    delivered = [int(each.whole().times.sum()) for each in run.epochs()]
    return list(zip(delivered, (record["observed"] for record in run.pruner.history), strict=True))


def _check_weighted(each: Pass, weigh: Any) -> None:
    run, epoch, where = each.run, each.epoch, each.where
    for pair in run.loader:
        ids, numbers = read_pair(run.case, where, pair)
        losses = losses_of(numbers, epoch.number)
        run.pruner.observe(losses, ids)
        weights = np.ones(ids.size) if epoch.weights is None else epoch.weights[ids]
        expected, got = float(np.mean(weights * losses)), float(weigh(run.loader, pair[0], losses))
        if not np.isclose(expected, got, rtol=1e-4):
            broken("weights", f"a loss of {expected:g} for the samples {shorten(ids)} in {where}", f"{got:g}")
    epoch.apply_weights()  # as was compared above
    seen = np.flatnonzero(epoch.keep)
    wrong = seen[~np.isclose(run.pruner.arrays["loss"][seen], losses_of(seen, epoch.number))]
    if wrong.size:
        broken("weights", f"losses without weights to be recorded in {where}", f"others for {shorten(wrong)}")


def _compare_counts(alone: Pruner, each: Pass) -> None:
    """Feed ``alone`` what a pass delivered, and compare mask and counts."""
    epoch = alone.begin_epoch()
    if not np.array_equal(epoch.keep, each.epoch.keep):
        broken("parity", f"the mask of the core alone in {each.where}", "another")
    for _, numbers in each.batches:
        alone.observe(losses_of(numbers, epoch.number), numbers)
    wrong = np.flatnonzero(alone.counts != each.run.pruner.counts)
    if wrong.size:
        broken("parity", f"the core's counts after {each.where}", f"others for the samples {shorten(wrong)}")
    alone.skip(alone.samples)
    alone.end_epoch()


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


def check_records(case: Case) -> None:
    """Clause ``records``: what ``case.weigh`` is given is recorded, as a Pruner without the adapter records it.

    Needs ``case.weigh`` and ``case.records``.
    """
    if case.weigh is None or not case.records:
        raise SkippedClause("records", "it needs weigh and records=True")
    for workers in case.workers:
        alone, run = case.pruner(), Run(case, "records", workers, record="weigh")
        while run.pruner.next_epoch < run.pruner.schedule.epochs:
            each, epoch = run.begin(), alone.begin_epoch()
            for _, numbers in each.take():
                alone.observe(losses_of(numbers, epoch.number), numbers)
            _compare(alone, run.pruner, each.where)


def _compare(alone: Pruner, pruner: Pruner, where: str) -> None:
    """End the epoch of both runs, and compare what they have recorded."""
    alone.skip(alone.samples)
    alone.end_epoch()
    try:
        pruner.end_epoch()
    except SkippedSamples as error:
        told = str(error).removesuffix(".")
        broken("records", f"all losses of {where} to be recorded when it ends", f"SkippedSamples: {told}")
    expected, got = (one.history[-1]["observed"] for one in (alone, pruner))
    if expected != got:
        broken("records", f"{expected} losses recorded in {where}", got)
    for name in ("visits", "hits"):
        wrong = np.flatnonzero(getattr(alone, name) != getattr(pruner, name))
        if wrong.size:
            fix = "record each batch by a call of its own, with the losses as they are"
            broken("records", f"the {name} of {where} as without the adapter", f"others for {shorten(wrong)}: {fix}")


def check_held_back(case: Case, workers: int, stop: tuple[int, int]) -> None:
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
