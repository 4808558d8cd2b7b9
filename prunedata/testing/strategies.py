"""Hypothesis strategies: schedules, batches of ids and losses, runs and their stores."""

import warnings
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from zarr.abc.store import Store
from zarr.storage import MemoryStore

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise ImportError("prunedata.testing.strategies needs hypothesis: pip install hypothesis") from error

from prunedata.errors import NeverPrunesWarning
from prunedata.plan.schedule import Schedule
from prunedata.policies.protocol import Policy
from prunedata.policies.rules import DroppingCount, Random
from prunedata.run.pruner import Pruner

__all__ = ["LOSSES", "SEEDS", "batches", "ids", "losses", "policies", "runs", "schedules", "stores"]

Reading = Literal["aligned", "printed"]
Batch = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]

SEEDS = st.integers(0, 2**32 - 1)
"""Seeds of a run."""

# 0.1 and 0.3 are no binary fractions: a batch of equal losses need not have that loss as its mean.
LOSSES = st.one_of(
    st.sampled_from([0.0, -0.0, 0.1, 0.3, 1.0, -0.1, -1.0, 1e-300, 1e16, 3.0]), st.floats(-1e6, 1e6, allow_nan=False)
)
"""One finite loss: numbers that tie or round often, and any others."""


@st.composite
def schedules(
    draw: st.DrawFn, max_epochs: int = 12, readings: tuple[Reading, ...] = ("aligned", "printed")
) -> Schedule:
    """Short schedules of either reading, with even and uneven windows; some prune nothing.

    Parameters
    ----------
    max_epochs : int
        The longest.
    readings : tuple of str
        Which readings of the paper.
    """
    epochs, block = draw(st.integers(1, max_epochs)), draw(st.integers(1, 4))
    reading = draw(st.sampled_from(readings))
    window: int | tuple[int, ...] = draw(st.integers(1, max_epochs + 2))
    if reading == "aligned" and draw(st.booleans()):
        window = tuple(draw(st.lists(st.integers(1, 5), min_size=epochs, max_size=epochs)))
    start, pruned = draw(st.integers(1, 4)), draw(st.integers(0, block) | st.just(block))
    return Schedule(epochs, window, start, block, pruned, draw(st.sampled_from([1.0, 2.0])), reading)


def policies() -> st.SearchStrategy[Policy]:
    """The paper's policy, with several tolerances and both ranks, and the random control."""
    tolerances = st.sampled_from([0.0, 0.0, 0.1, 0.5, 2.0])
    counting = st.builds(DroppingCount, tolerances, st.sampled_from(["window", "run"]))
    return st.one_of(counting, st.just(Random()))


def ids(samples: int, *, min_size: int = 1, max_size: int = 10) -> st.SearchStrategy[npt.NDArray[np.int64]]:
    """Ids of one batch, int64, shape (n,), from ``min_size`` to ``max_size`` of them; some repeat."""
    every = st.lists(st.integers(0, samples - 1), min_size=min_size, max_size=max_size)
    return every.map(lambda some: np.array(some, dtype=np.int64))


@st.composite
def losses(draw: st.DrawFn, size: int) -> npt.NDArray[np.float64]:
    """The losses of one batch, finite float64, shape (size,): all kinds, all equal, or of two values that tie."""
    values = draw(st.sampled_from([LOSSES, st.just(draw(LOSSES)), st.sampled_from([0.1, 0.3])]))
    return np.array(draw(st.lists(values, min_size=size, max_size=size)), dtype=np.float64)


@st.composite
def batches(draw: st.DrawFn, samples: int, max_size: int = 10, max_batches: int = 6) -> list[Batch]:
    """Some batches ``(ids, losses)``, none to ``max_batches``, of 1 to ``max_size`` samples each."""
    drawn = draw(st.lists(ids(samples, max_size=max_size), max_size=max_batches))
    return [(some, draw(losses(some.size))) for some in drawn]


@st.composite
def runs(draw: st.DrawFn, max_samples: int = 12, max_epochs: int = 6, store: Store | None = None) -> Pruner:
    """A run somewhere on its way: before its first epoch, between two, within one, or done.

    Parameters
    ----------
    max_samples, max_epochs : int
        The largest.
    store : zarr store, optional
        An empty one for the run. Without it runs live in memory.
    """
    schedule, samples = draw(schedules(max_epochs)), draw(st.integers(1, max_samples))
    options: dict[str, Any] = {"policy": draw(policies()), "seed": draw(SEEDS), "store": store}
    options["batch_size"] = draw(st.none() | st.integers(1, max_samples))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeverPrunesWarning)
        pruner = Pruner(samples, schedule, prune=draw(st.integers(0, samples - 1)), **options)
    for _ in range(draw(st.integers(0, schedule.epochs))):
        kept = np.flatnonzero(pruner.begin_epoch().keep)
        for some, values in [*draw(batches(samples, max_batches=2)), (kept, draw(losses(kept.size)))]:
            pruner.observe(values, some)
        pruner.end_epoch()
    if pruner.next_epoch < schedule.epochs and draw(st.booleans()):
        pruner.begin_epoch()
        for some, values in draw(batches(samples)):
            pruner.observe(values, some)
    return pruner


@st.composite
def stores(draw: st.DrawFn, max_samples: int = 12, max_epochs: int = 6) -> tuple[Store, Pruner]:
    """A zarr store in memory, and the run that has just been committed to it, perhaps within an epoch."""
    store = MemoryStore()
    pruner = draw(runs(max_samples, max_epochs, store))
    pruner.commit()
    return store, pruner
