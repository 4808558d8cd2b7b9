"""What a run as its store holds it would be advised now."""

from prunedata.findings.advice import Advice, advise, losses_of
from prunedata.findings.searched import searched
from prunedata.plan.schedule import Schedule
from prunedata.policies.mean_excess import MEAN_EXCESS
from prunedata.store.state import RunState

__all__ = ["advise_now"]


def advise_now(run: RunState) -> Advice:
    """Advise a run by all its finished epochs.

    Raises
    ------
    PrunedataError
        If the run has too many samples to look at.
    """
    run.check_size()
    most = run.run["prune"] if run.run["policy"]["name"] == "auto" else None
    losses = losses_of(run.arrays | {MEAN_EXCESS: run.mean_excess}, run.history)
    return advise(run.history, Schedule.from_dict(run.schedule), losses[searched(run)], prune=most)
