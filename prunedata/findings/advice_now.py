"""The advice of a stored run, as it was given or as it would be now, and its outcome in a sentence or two."""

from prunedata.findings.advice import Advice, advise, losses_of
from prunedata.findings.searched import num_searched, searched
from prunedata.plan.doubts import late_from
from prunedata.plan.onset import find_onset
from prunedata.plan.schedule import Schedule
from prunedata.policies.rules import MEAN_EXCESS
from prunedata.store.state import RunState

__all__ = ["advise_now", "outcome"]

EARLY = 3
"""After fewer epochs all losses are still high, and wrong labels are not a group of their own."""


def advise_now(run: RunState) -> Advice:
    """Return the advice that a run follows, or else advise it by all its finished epochs.

    Raises
    ------
    PrunedataError
        If the run has too many samples to look at, or its advice is damaged.
    """
    run.check_size()
    if run.advice is not None:
        return Advice.from_dict(run.advice)
    most = run.run["prune"] if run.run["policy"]["name"] == "auto" else None
    losses = losses_of(run.arrays | {MEAN_EXCESS: run.mean_excess}, run.history)
    among, labels = searched(run), run.arrays.get("labels")
    known = None if labels is None else labels[among]
    return advise(run.history, Schedule.from_dict(run.schedule), losses[among], prune=most, labels=known)


def outcome(run: RunState, advice: Advice) -> str:
    """Return how many labels look wrong, of how many, and where the validation figure went, in two sentences."""
    labels = f"{num_searched(run):,} labels"
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
