"""Describe a stored run without changing it: all that it has, its advice, and its outcome in a sentence or two."""

from typing import Any

import numpy as np

from prunedata.checks import count_top
from prunedata.errors import DamagedStore, PrunedataError
from prunedata.findings.advice import Advice, advise, losses_of
from prunedata.findings.searched import num_searched, num_unsearched, searched, searched_visits
from prunedata.options import OPTIONS
from prunedata.plan.doubts import known_labels, late_from, observed
from prunedata.plan.onset import find_onset
from prunedata.plan.savings import savings, would_save
from prunedata.plan.schedule import Schedule
from prunedata.policies.rules import MEAN_EXCESS
from prunedata.store.run_store import StoreLike, read_run
from prunedata.store.state import COUNTING, LABEL, RunState
from prunedata.types import Ids

__all__ = ["advise_now", "inspect", "most_pruned", "outcome", "times_pruned"]


def inspect(location: StoreLike, *, top: int | float = 10) -> dict[str, Any]:
    """Describe the run in a store as plain values that JSON can hold.

    Parameters
    ----------
    location : path, URL or zarr store
        Where the run is kept. It may be running.
    top : int or float
        How many samples to list under ``most_pruned``, or what fraction of them.

    Returns
    -------
    dict
        ``samples``, ``prune``, ``policy``, ``schedule``, ``seed``, ``batch_size``, ``leave_out``, ``classes``: the
        arguments of the run (the schedule in force now);
        ``without``: how many samples were left out for good; ``held_out``: how many are delivered and never trained on;
        ``lost``: how many rows are kept that are no longer in the data;
        ``advice``: with the policy auto its advice, as :meth:`prunedata.Advice.to_dict`, or None;
        ``would_save_percent``: with ``leave_out="nothing"``, the visits that pruning would have saved in the finished
        epochs, otherwise None; ``saved``: the visits, batches and time that the finished epochs have saved, as
        :func:`prunedata.plan.savings.savings`; ``epoch``, ``open``: the epoch that is open, or else the next;
        ``generation``: commits so far; ``arrays``; ``history``: a record for each finished epoch;
        ``counts_histogram``: samples that the run may train on, by count; ``most_pruned``: the samples left out most
        often, with their ``hits`` and ``visits`` of the run and their ``count`` of the window.

    Raises
    ------
    PrunedataError
        If no run is there, or it is damaged; or `top` makes no sense.
    """
    found = read_run(location)
    state, run, history = found.state, found.state.run, found.state.history
    try:
        if state.advice is not None:
            Advice.from_dict(state.advice)
    except PrunedataError as error:
        raise DamagedStore(f"Expected a run with advice at {location}. {error}") from error
    return {
        **run,
        **{option.name: run.get(option.name, option.default) for option in OPTIONS},
        "advice": state.advice,
        **num_unsearched(state),
        "would_save_percent": 100 * would_save(history, state.samples) if run.get("leave_out") == "nothing" else None,
        "saved": savings(history, state.samples, run.get("batch_size")),
        "schedule": state.schedule,
        "epoch": state.epoch,
        "open": state.open,
        "generation": found.generation,
        "arrays": [{"name": n, "dtype": str(a.dtype), "shape": list(a.shape)} for n, a in sorted(state.arrays.items())],
        "history": history,
        "counts_histogram": _histogram(state),
        "most_pruned": most_pruned(state, top),
    }


def most_pruned(state: RunState, top: int | float) -> list[dict[str, int]]:
    """Return the `top` samples left out most often: their ``id``, and how often they were ``pruned``.

    Also ``hits`` and ``visits`` of the run, and the ``count`` of the window. Of ties, more hits come first.
    """
    wanted = count_top(top, state.samples)
    if not state.arrays:
        return []
    counts, hits, visits = (state.counts_of(name) for name in COUNTING)
    pruned = times_pruned(state)
    most = np.lexsort((-hits.astype(np.int64), -pruned))[:wanted]
    arrays = {"pruned": pruned, "hits": hits, "visits": visits, "count": counts}
    return [{"id": int(i)} | {name: int(array[i]) for name, array in arrays.items()} for i in most[pruned[most] > 0]]


def times_pruned(state: RunState) -> Ids:
    """Return in how many finished epochs each sample was left out, shape (samples,); 0 if it is not searched."""
    absent = state.arrays.get("absent", np.uint32(0))
    left = np.uint32(len(state.history)) - absent - state.visits.astype(np.uint32)  # modulo 2**32, as absent is
    times = np.maximum(left.view(np.int32), 0).astype(np.int64)
    return np.where(searched(state), times, 0)


def _histogram(state: RunState) -> dict[int, int]:
    """Return how many of the samples that the run may train on have each count."""
    if not state.arrays:  # such a store may name any number of samples
        return {0: num_searched(state)}
    values, numbers = np.unique(state.counts_of("counts")[searched(state)], return_counts=True)
    return dict(zip(values.tolist(), numbers.tolist(), strict=True))


EARLY = 3
"""After fewer epochs all losses are still high, and wrong labels are not a group of their own."""


def advise_now(run: RunState) -> Advice:
    """Return the advice that a run follows, or else advise it by all its finished epochs."""
    run.check_size()
    if run.advice is not None:
        return Advice.from_dict(run.advice)
    most = run.run["prune"] if run.run["policy"]["name"] == "auto" else None
    losses = losses_of(run.arrays | {MEAN_EXCESS: run.mean_excess}, run.history)
    among = observed(run.visits, searched(run))
    labels = known_labels(run.arrays.get("labels"), run.arrays.get(LABEL), among)
    known = None if labels is None else labels[among]
    return advise(run.history, Schedule.from_dict(run.schedule), losses[among], prune=most, labels=known)


def outcome(run: RunState, advice: Advice) -> str:
    """Return how many labels look wrong, of how many, and where the validation figure went, in two sentences."""
    labels = f"{np.count_nonzero(searched_visits(run)) or num_searched(run):,} labels"
    figures = find_onset(run.history)
    if advice.doubted:
        told = f"{advice.doubted:,} of {labels} look wrong."
    elif not any(record["observed"] for record in run.history):
        told = f"No losses were observed yet, so nothing is known about the {labels}."
    elif (done := len(run.history)) < max(EARLY, late_from(run.schedule["epochs"])):
        after = f"{done} epoch{'s'[: done > 1]}"
        told = f"After {after} it is too early to count wrong ones among the {labels}: look at the most suspect."
    else:
        told = f"None of the {labels} stands out as wrong."
    with_figure = [record for record in run.history if record.get("validation") is not None]
    if not with_figure:
        return told
    last, held_out = with_figure[-1], " of the held-out samples" if "held_out" in with_figure[-1] else ""
    best = next((record for record in with_figure if record["number"] == figures.best), last)
    accuracy = f" and their accuracy {last['accuracy']:.2%}" if "accuracy" in last else ""
    told += f" The validation figure{held_out} is {last['validation']:.4g}{accuracy} in epoch {last['number']:,}"
    if figures.lost > 0 and f"{best['validation']:.4g}" != f"{last['validation']:.4g}":
        most = "lowest" if last.get("lower_is_better") else "highest"
        told += f"; it was {most} around epoch {best['number']:,}, at {best['validation']:.4g}"
    return f"{told}."
