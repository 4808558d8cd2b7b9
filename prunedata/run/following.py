"""Follow rows by their keys: move each row's counts, averages and verdicts to its place in the new data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from prunedata.errors import OtherData, PrunedataError
from prunedata.findings.searched import held_out
from prunedata.keys import places_of
from prunedata.plan.schedule import Schedule
from prunedata.policies.selection import draw_holdout
from prunedata.store.state import LOST, RunState
from prunedata.types import Array, Arrays, Keys

SHOWN = 5


def followed(state: RunState, keys: Keys, fresh: Arrays, prune: int) -> RunState:
    """Return a state for data with other rows, or the same rows at other places; ``prune`` is the new run's.

    Each row keeps its values, wherever it lay before; new rows have those in ``fresh``, the arrays of a run that
    begins. Values of rows that are no longer in the data are kept under names with the prefix ``lost-``, and return
    with these rows. Raises :class:`PrunedataError` if the state has no keys, or an epoch is open.
    """
    if state.keys is None:
        raise PrunedataError(
            "Expected a stored run with keys, by which follow=True follows its rows. Got one without keys: if its data "
            "is still the same, resume it once with keys=... and without follow; later it can follow."
        )
    if state.open:
        raise PrunedataError(
            f"Expected a run between two epochs, as rows move then. Got one within epoch {state.epoch}: end that epoch "
            "with the data that it began with, and follow after it."
        )
    before, samples = _table(state), keys.size
    begin: dict[str, Array] = dict.fromkeys(before, np.zeros(1, np.uint8)) | fresh
    begin["absent"] = np.full(1, len(state.history))
    share = state.run.get("holdout")
    if share is not None:
        begin["held_out"] = draw_holdout(samples, share, state.run["seed"])
    at = places_of(keys, before["keys"])
    here, gone = at >= 0, np.ones(before["keys"].size, dtype=np.bool_)
    gone[at[here]] = False
    arrays = {
        name: np.where(here, array[at], np.broadcast_to(begin[name], (samples,)).astype(array.dtype))
        for name, array in before.items()
    }
    arrays["keys"] = keys
    if gone.any():
        arrays |= {f"{LOST}{name}": array[gone] for name, array in before.items()}
    stayed = int(np.count_nonzero(np.isin(state.keys, keys, assume_unique=True)))
    many = {} if state.samples == samples else {"samples": state.samples}  # of each earlier epoch
    history = [many | record for record in state.history]
    if history:
        history[-1] |= {"lost": state.keys.size - stayed, "fresh": samples - stayed}
    advice = state.advice
    if advice is not None:  # for the same share of the new rows
        advice = advice | {name: round(advice[name] * samples / state.samples) for name in ("prune", "doubted")}
    return replace(
        state,
        run=state.run | {"samples": samples, "prune": prune},
        history=history,
        advice=advice,
        sketch=None,  # of other places, as are the fingerprints
        data=None,
        arrays=arrays,
    )


def _table(state: RunState) -> Arrays:
    """Return the values of all rows: first those in the data, then those that are no longer there."""
    lost, samples, done = state.lost, state.samples, len(state.history)
    since = max((one["number"] + 1 for one in state.history if "lost" in one), default=0)
    mine = {name: array for name, array in state.arrays.items() if not name.startswith(LOST)}
    mine.setdefault("absent", np.zeros(samples, dtype=np.uint32))
    mine.setdefault("without", np.zeros(samples, dtype=np.uint8))
    if state.run.get("holdout") is not None:
        mine["held_out"] = held_out(state).astype(np.uint8)
    if not lost:
        return mine
    lost["absent"] = lost["absent"] + np.uint32(done - since)
    schedule = Schedule.from_dict(state.schedule)
    if any(schedule.resets(epoch) for epoch in range(since, done)):
        lost["counts"] = np.zeros_like(lost["counts"])
    none = np.zeros(lost["keys"].size)  # for arrays that the run has kept only since, as guesses
    return {name: np.concatenate([array, lost.get(name, none).astype(array.dtype)]) for name, array in mine.items()}


def moved(before: Keys, now: Keys) -> OtherData:
    """Return the error for data whose keys differ from those that the run began with."""
    at = places_of(now, before)
    new, gone = int(np.count_nonzero(at < 0)), before.size - int(np.count_nonzero(at >= 0))
    other = np.flatnonzero(at != np.arange(now.size))
    some = ", ".join(
        f"sample {one} is a new row" if at[one] < 0 else f"sample {one} was sample {at[one]}"
        for one in other[:SHOWN].tolist()
    )
    places = f"other rows at {other.size:,} of {now.size:,} places" if other.size else f"{now.size:,} rows"
    return OtherData(
        f"Expected the rows that the run began with, by their keys. Got {places}: {new:,} are new, and {gone:,} of the "
        f"{before.size:,} are gone{f' ({some})' if some else ''}. Pass the same data in the same order; or pass "
        "follow=True, and the records of each row move with it; or begin a new store."
    )
