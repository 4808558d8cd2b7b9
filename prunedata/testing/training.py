"""Clauses about training: the user's own batches, weighted losses, the core's counts, and what an adapter records."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from prunedata.policies.rules import LossRanked
from prunedata.run.pruner import Pruner
from prunedata.testing.case import BrokenContract, Case, Loader, Run, SkippedClause, losses_of, shorten


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
            run.broken(f"batches like {expected} with {workers} workers", got)


def check_weights(case: Case) -> None:
    """Clause ``weights``: loops train on weighted losses, and record these as they are. Needs ``case.weigh``."""
    for workers in case.workers:
        run = Run(case, "weights", workers, pruner=case.pruner(policy=LossRanked()))
        if case.weigh is None:
            if hasattr(run.loader, "observe"):
                raise ValueError("Expected Case.weigh, as the loader has observe(). Got none.")
            raise SkippedClause("weights", "it needs weigh")
        for epoch in run.epochs():
            for pair in run.loader:
                ids, numbers = run.read(pair)
                losses = losses_of(numbers, epoch.number)
                run.pruner.observe(losses, ids)
                weights = np.ones(ids.size) if epoch.weights is None else epoch.weights[ids]
                expected, got = float(np.mean(weights * losses)), float(case.weigh(run.loader, pair[0], losses))
                if not np.isclose(expected, got, rtol=1e-4):
                    run.broken(f"a loss of {expected:g} for the samples {shorten(ids)} in {run.where}", f"{got:g}")
            epoch.apply_weights()  # as was compared above
            seen = np.flatnonzero(epoch.keep)
            wrong = seen[~np.isclose(run.pruner.arrays["loss"][seen], losses_of(seen, epoch.number))]
            if wrong.size:
                run.broken(f"losses without weights to be recorded in {run.where}", f"others for {shorten(wrong)}")


def check_parity(case: Case) -> None:
    """Clause ``parity``: masks and counts are those of the core alone, fed with the same batches."""
    for workers in case.workers:
        for alone, run in _beside_the_core(case, "parity", workers):
            run.pruner.skip(case.samples)
            run.pruner.end_epoch()
            _compare(alone, run)


def check_records(case: Case) -> None:
    """Clause ``records``: ``case.weigh`` records what it is given. Needs ``case.weigh`` and ``case.records``."""
    if case.weigh is None or not case.records:
        raise SkippedClause("records", "it needs weigh and records=True")
    for workers in case.workers:
        for alone, run in _beside_the_core(case, "records", workers, "weigh"):
            run.end(f"all losses of {run.where} to be recorded when it ends")
            _compare(alone, run, ": record each batch by a call of its own, with the losses as they are")


def _beside_the_core(
    case: Case, clause: str, workers: int, record: Literal["observe", "weigh"] = "observe"
) -> Iterator[tuple[Pruner, Run]]:
    """Train each epoch of a run, and feed its batches to the core alone; yield both when the core's epoch has ended."""
    alone, run = case.pruner(), Run(case, clause, workers, record=record)
    while run.pruner.next_epoch < run.pruner.schedule.epochs:
        epoch = alone.begin_epoch()
        if not np.array_equal(epoch.keep, run.begin().keep):
            run.broken(f"the mask of the core alone in {run.where}", "another")
        for _, numbers in run.take():
            alone.observe(losses_of(numbers, epoch.number), numbers)
        alone.skip(alone.samples)
        alone.end_epoch()
        yield alone, run


def _compare(alone: Pruner, run: Run, fix: str = "") -> None:
    """Compare what the core alone and the run have recorded, when an epoch has ended."""
    expected, got = (one.history[-1]["observed"] for one in (alone, run.pruner))
    if expected != got:
        run.broken(f"{expected} losses recorded in {run.where}, as many as were observed", got)
    for name in ("counts", "visits", "hits"):
        wrong = np.flatnonzero(getattr(alone, name) != getattr(run.pruner, name))
        if wrong.size:
            run.broken(f"the core's {name} after {run.where}", f"others for the samples {shorten(wrong)}{fix}")


def check_attached_once(case: Case) -> None:
    """Clause ``attached once``: a run for which the loader is made twice goes as if it had been made once."""

    def twice(pruner: Pruner, workers: int) -> Loader:
        case.make_loader(pruner, workers)
        once = len(pruner.adapters)
        loader = case.make_loader(pruner, workers)
        if len(pruner.adapters) != once:
            names = ", ".join(type(adapter).__name__ for adapter in pruner.adapters)
            expected = f"{once} adapters after the loader was made again: give yours a key"
            raise BrokenContract("attached once", expected, names)
        return loader

    for workers in case.workers:
        once, again = (_amounts(each, workers) for each in (case, replace(case, make_loader=twice)))
        if once != again:
            expected = f"(delivered, recorded) to be {once} in each epoch with {workers} workers"
            raise BrokenContract("attached once", expected, again)


def _amounts(case: Case, workers: int) -> list[tuple[int, int]]:
    """How many samples are delivered, and how many losses recorded, in each epoch of a run."""
    run = Run(case, "attached once", workers)
    delivered = [int(run.whole().sum()) for _ in run.epochs()]
    return list(zip(delivered, (record["observed"] for record in run.pruner.history), strict=True))


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
