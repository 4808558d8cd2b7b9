"""What a run as its store holds it would be advised now, and why that may differ from what it was advised before."""

from dataclasses import replace

from prunedata.findings.advice import Advice, advise
from prunedata.findings.searched import searched
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
    excess = None if run.mean_excess is None else run.mean_excess[searched(run)]
    most = run.run["prune"] if run.run["policy"]["name"] == "auto" or excess is None else None
    now = advise(run.history, Schedule.from_dict(run.schedule), excess, prune=most)
    told = changed(run, now)
    return now if told is None else replace(now, evidence=(told, *now.evidence))


def changed(run: RunState, now: Advice) -> str | None:
    """Say what a run was advised and why it is advised something else now; None if it is not."""
    if run.advice is None:
        return None
    before = Advice.from_dict(run.advice)
    if before.verdict == now.verdict:
        return None
    return (
        f"The run itself was advised to {_said(before)}, and does so. It was advised by its counts, as versions before "
        f"0.1.0 did. By its validation figures the advice is to {_said(now)}, for a next run."
    )


def _said(advice: Advice) -> str:
    if advice.verdict == "prune":
        return f"prune {advice.prune:,} samples"
    return "watch on" if advice.verdict == "watch" else "prune nothing"
