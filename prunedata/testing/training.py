"""Clauses about what is trained on and recorded: the user's own batches, weighted losses, the core's counts."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from prunedata.policies.rules import LossRanked
from prunedata.run.pruner import Pruner
from prunedata.testing.case import Case, Loader, SkippedClause, broken, losses_of, shorten
from prunedata.testing.passes import Pass, read_pair, run

__all__ = ["check_attached_once", "check_parity", "check_structure", "check_weights"]


def check_structure(case: Case) -> None:
    """Clause ``structure``: a batch is built as the user's own loader builds it. Needs ``case.plain``."""
    if case.plain is None:
        raise SkippedClause("structure", "it needs plain")
    for workers in case.workers:
        expected = _structure(next(iter(case.plain(workers))))
        pruner = case.pruner()
        pruner.begin_epoch()
        got = _structure(next(iter(case.make_loader(pruner, workers)))[1])
        if got != expected:
            broken("structure", f"batches like {expected} with {workers} workers", got)


def check_weights(case: Case) -> None:
    """Clause ``weights``: under a policy that weighs, the loop trains on the mean of the weighted losses.

    Recorded are the losses as they are. Needs ``case.weigh``.
    """
    for workers in case.workers:
        pruner = case.pruner(policy=LossRanked())
        loader = case.make_loader(pruner, workers)
        if case.weigh is None:
            if hasattr(loader, "observe"):
                raise ValueError("Expected Case.weigh, as the loader has observe(). Got none.")
            raise SkippedClause("weights", "it needs weigh")
        while pruner.next_epoch < pruner.schedule.epochs:
            _check_weighted_epoch(case, case.weigh, loader, pruner, workers)


def check_parity(case: Case) -> None:
    """Clause ``parity``: masks and counts are those of the core alone, fed with the same batches."""
    for workers in case.workers:
        alone = case.pruner()
        passes = list(_compared(case, alone, workers))
        expected, got = ([record["observed"] for record in each.history] for each in (alone, passes[-1].pruner))
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
    passes = list(run(case, "attached once", workers))
    history = passes[-1].pruner.history
    return [(int(each.times.sum()), record["observed"]) for record, each in zip(history, passes, strict=True)]


def _check_weighted_epoch(case: Case, weigh: Any, loader: Any, pruner: Pruner, workers: int) -> None:
    epoch = pruner.begin_epoch()
    where = f"epoch {epoch.number} with {workers} workers"
    for pair in loader:
        ids, numbers = read_pair(case, where, pair)
        losses = losses_of(numbers, epoch.number)
        pruner.observe(losses, ids)
        weights = np.ones(ids.size) if epoch.weights is None else epoch.weights[ids]
        expected, got = float(np.mean(weights * losses)), float(weigh(loader, pair[0], losses))
        if not np.isclose(expected, got, rtol=1e-4):
            broken("weights", f"a loss of {expected:g} for the samples {shorten(ids)} in {where}", f"{got:g}")
    epoch.apply_weights()  # as was compared above
    pruner.skip(pruner.samples)
    pruner.end_epoch()
    seen = np.flatnonzero(epoch.keep)
    wrong = seen[~np.isclose(pruner.arrays["loss"][seen], losses_of(seen, epoch.number))]
    if wrong.size:
        broken("weights", f"losses without weights to be recorded in {where}", f"others for {shorten(wrong)}")


def _compared(case: Case, alone: Pruner, workers: int) -> Iterator[Pass]:
    """Feed ``alone`` what each pass delivered, and compare mask and counts."""
    for each in run(case, "parity", workers):
        epoch = alone.begin_epoch()
        if not np.array_equal(epoch.keep, each.epoch.keep):
            broken("parity", f"the mask of the core alone in {each.where}", "another")
        for _, numbers in each.batches:
            alone.observe(losses_of(numbers, epoch.number), numbers)
        wrong = np.flatnonzero(alone.counts != each.pruner.counts)
        if wrong.size:
            broken("parity", f"the core's counts after {each.where}", f"others for the samples {shorten(wrong)}")
        alone.skip(alone.samples)
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
