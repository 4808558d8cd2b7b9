"""What a run as its store holds it would be advised now, and why that may differ from what it was advised before."""

from dataclasses import replace

from prunedata.findings.advice import Advice, advise
from prunedata.plan.schedule import Schedule
from prunedata.store.state import RunState

__all__ = ["advise_now", "changed"]


def advise_now(run: RunState) -> Advice:
    """Advise a run by all its finished epochs; if it was advised something else, the evidence begins with that.

    Raises
    ------
    PrunedataError
        If the run has too many samples to look at, or its stored advice is damaged.
    """
    run.check_size()
    seen = slice(None) if run.without is None else ~run.without
    now = advise(
        run.hits[seen],
        run.visits[seen],
        None if run.high is None else run.high[seen],
        len(run.history),
        Schedule.from_dict(run.schedule),
        run.visits[seen].size,
        tolerance=run.tolerance,
        prune=run.run["prune"],
        history=run.history,
    )
    told = changed(run, now)
    return now if told is None else replace(now, evidence=(told, *now.evidence))


def changed(run: RunState, now: Advice) -> str | None:
    """Say what a run was advised and why it is advised something else now; None if it is not."""
    if run.advice is None:
        return None
    before, done = Advice.from_dict(run.advice), len(run.history)
    if before.verdict == now.verdict:
        return None
    when = next((sentence for sentence in before.evidence if sentence.startswith("Seen after ")), "")
    return (
        f"The run itself was advised {_said(before)}, and does so. {when} By all {done} finished epochs the advice is "
        f"{_said(now)}. Both go by counts: the first by those from before it pruned, this one also by those since. "
        "What was pruned was visited less, the learning rate may have changed, and a network that has learnt wrong "
        "labels by heart no longer shows them. The earlier advice is in force in this run; this one is for a next run."
    ).replace("  ", " ")


def _said(advice: Advice) -> str:
    if advice.verdict == "watch":
        return "to watch on"
    seems = "" if advice.wrong_labels is None else f", as about {advice.wrong_labels:.0%} of the labels seem wrong"
    what = f"to prune {advice.prune:,} samples" if advice.verdict == "prune" else "not to prune"
    return f"{what}{seems}"
