"""The samples of a run that are searched for wrong labels: those that it may train on.

A held-out sample is delivered in every epoch and never trained on, so that it has no visits and no score. A sample that
is left out for good was judged before.
"""

from typing import Any, Protocol, runtime_checkable

import numpy as np

from prunedata.policies.selection import count_holdout, draw_holdout
from prunedata.store.run_store import StoreLike, read_run
from prunedata.store.state import RunState
from prunedata.types import Counts, Mask


@runtime_checkable
class Stateful(Protocol):
    """A live run, as a :class:`prunedata.Pruner`."""

    def state_dict(self) -> dict[str, Any]:
        """Return where the run stands."""
        ...


def state_of(run: StoreLike | Stateful) -> RunState:
    """Return the state of a live run, or of one in a store."""
    return RunState.from_checkpoint(run.state_dict()) if isinstance(run, Stateful) else read_run(run).state


def searched(run: RunState) -> Mask:
    """True for the samples that the run may train on, shape (samples,)."""
    run.check_size()
    found = np.ones(run.samples, dtype=np.bool_) if run.without is None else ~run.without
    return found if run.run.get("holdout") is None else found & ~held_out(run)


def held_out(run: RunState) -> Mask:
    """True for the samples that are delivered and never trained on, shape (samples,)."""
    share, moved = run.run.get("holdout"), run.held_out
    if share is None:
        return np.zeros(run.samples, dtype=np.bool_)
    found = draw_holdout(run.samples, share, run.run["seed"]) if moved is None else moved
    return found if run.without is None else found & ~run.without


def searched_visits(run: RunState) -> Counts:
    """Visits of the whole run, shape (samples,); 0 for samples that are not searched."""
    visits = run.visits
    return visits if num_searched(run) == run.samples else np.where(searched(run), visits, visits.dtype.type(0))


def told_unsearched(run: RunState) -> str | None:
    """Return in words how many samples are not searched, and why; None if all are."""
    why = {"held_out": "held out", "without": "left out for good", "lost": "no longer in the data"}
    numbers = num_unsearched(run)
    told = [f"{numbers[name]:,} {words}" for name, words in why.items() if numbers[name]]
    return f"{' and '.join(told)}, not searched" if told else None


def num_searched(run: RunState) -> int:
    """Return how many samples the run may train on."""
    numbers = num_unsearched(run)
    return run.samples - numbers["without"] - numbers["held_out"]


def num_unsearched(run: RunState) -> dict[str, int]:
    """Return how many samples are not searched: left out for good (``without``), ``held_out``, and ``lost``.

    The last are rows that are kept and no longer in the data: they are not among the run's samples.
    """
    share, held = run.run.get("holdout"), 0
    if share is not None and {"without", "held_out"} & run.arrays.keys():
        held = int(np.count_nonzero(held_out(run)))
    elif share is not None:
        held = count_holdout(run.samples, share)  # without an array: a store may claim any number of samples
    without = 0 if run.without is None else int(np.count_nonzero(run.without))
    return {"without": without, "held_out": held, "lost": run.lost.get("keys", np.empty(0)).size}
