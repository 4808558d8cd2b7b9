"""What a run has recorded of its samples, read from its store without touching it."""

from dataclasses import dataclass

import numpy as np

from prunedata.errors import ForeignStore
from prunedata.plan.schedule import Schedule
from prunedata.store.run_store import RunStore, StoreLike
from prunedata.types import Counts

__all__ = ["Recorded", "read_run"]


@dataclass(frozen=True, eq=False)
class Recorded:
    """The finished epochs of a run, as its store holds them.

    Attributes
    ----------
    samples, epochs : int
        Samples of the data set, and epochs that are finished.
    schedule : Schedule
        As it stands now.
    prune : int
        Samples that a pruned epoch leaves out.
    tolerance : float
        How far above its batch's mean a loss had to lie to be a hit.
    hits, visits : ndarray of unsigned int, shape (samples,)
        Hits, and times observed, in the whole run.
    high : ndarray of unsigned int, shape (samples,), or None
        Visits with a loss above ``ln(classes)``, if the run was told its ``classes``.
    """

    samples: int
    epochs: int
    schedule: Schedule
    prune: int
    tolerance: float
    hits: Counts
    visits: Counts
    high: Counts | None


def read_run(location: StoreLike) -> Recorded:
    """Read the run kept at `location`. It may be running.

    Raises
    ------
    PrunedataError
        If no run is there, or it is damaged.
    """
    found = RunStore(location, mode="r").read()
    if found is None:
        raise ForeignStore(f"Expected a run at {location}. Got nothing.")
    state, arrays = found
    run = state["run"]
    none = np.zeros(run["samples"], dtype=np.uint8)  # a run that was created and has done no epoch has no arrays
    return Recorded(
        samples=run["samples"],
        epochs=len(state["history"]),
        schedule=Schedule.from_dict(state["schedule"]),
        prune=run["prune"],
        tolerance=float(run["policy"].get("tolerance", 0.0)),
        hits=arrays.get("hits", none),
        visits=arrays.get("visits", none),
        high=arrays.get("high"),
    )
