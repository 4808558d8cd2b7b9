"""The state of a run as something that can be saved, and the checks before a run goes on from it."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from prunedata.errors import ForeignStore, NeverPrunesWarning, PrunedataError
from prunedata.plan.schedule import Schedule
from prunedata.types import Arrays

__all__ = ["check_same_run", "pack", "unpack", "warn_if_idle", "warn_of_advice"]

FORMAT = 1
KINDS = {
    "run": dict, "schedule": dict, "epoch": int, "open": bool, "complete": bool, "excused": int, "observed": int,
    "meter": dict, "history": list,
}  # fmt: skip


def pack(state: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
    """One dict of plain values; arrays become their bytes, which every format of checkpoints can hold."""
    history = [dict(record) for record in state["history"]]
    packed = {name: {"dtype": array.dtype.str, "data": array.tobytes()} for name, array in arrays.items()}
    return {"format": FORMAT, "state": {**state, "history": history}, "arrays": packed}


def unpack(packed: dict[str, Any]) -> tuple[dict[str, Any], Arrays]:
    """What :func:`pack` was given. Raises :class:`PrunedataError` if it is nothing of the kind."""
    try:
        if packed["format"] != FORMAT:
            raise PrunedataError(f"Expected a state of format {FORMAT}. Got format {packed['format']!r}.")
        arrays = {
            name: np.frombuffer(bytes(array["data"]), dtype=array["dtype"]) for name, array in packed["arrays"].items()
        }
        state = packed["state"]
        for name, kind in KINDS.items():
            if not isinstance(state[name], kind):
                raise TypeError(f"{name} is {state[name]!r}")
        return state, arrays
    except PrunedataError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise PrunedataError(f"Expected what state_dict() returned. Got {type(packed).__name__}: {error!r}.") from error


def check_same_run(
    state: dict[str, Any], arrays: Arrays | None, run: dict[str, Any], extras: dict[str, np.dtype[Any]]
) -> None:
    """Raise :class:`ForeignStore` if a state is of another run than ``run`` describes, saying what differs.

    ``extras`` are the dtypes of the arrays that it must have beside the run's own.
    """
    there = state.get("run", {})
    differ = [name for name in {**run, **there} if there.get(name) != run.get(name)]
    if differ:
        told = "; ".join(f"{name}: expected {run.get(name)!r}, got {there.get(name)!r}" for name in differ)
        raise ForeignStore(
            f"Expected the state of this run. Got that of another ({told}). "
            "Give the run the arguments it began with, or another store."
        )
    if arrays is None:
        return
    counting = ("counts", "hits", "visits", *(("tally",) if state["open"] else ()))  # of any unsigned dtype
    for name, kind in {**dict.fromkeys(counting), **extras}.items():
        array = arrays.get(name)
        found = "none" if array is None else f"shape {array.shape}, dtype {array.dtype}"
        alike = array is not None and (array.dtype.kind == "u" if kind is None else array.dtype == kind)
        if array is None or array.shape != (run["samples"],) or not alike:
            wanted = "unsigned" if kind is None else str(kind)
            raise PrunedataError(f"Expected an array {name} of shape ({run['samples']},), {wanted}. Got {found}.")


def warn_if_idle(schedule: Schedule, samples: int, kept: int) -> None:
    """Warn if no epoch is pruned, or pruned epochs keep everything."""
    if not schedule.pruned_epochs:
        why = f"no epoch of {schedule} is pruned: let start be less than the window, and pruned_per_block at least 1"
    elif kept == samples:
        why = f"pruned epochs keep all {samples} samples: raise prune, or lower batch_size"
    else:
        return
    warnings.warn(f"Expected a run that prunes. Got one that never does: {why}.", NeverPrunesWarning, stacklevel=5)


def warn_of_advice(evidence: Sequence[str]) -> None:
    """Warn that nothing will be pruned because the run was advised not to."""
    warnings.warn(
        f"Expected a run that gains by pruning. Got one that saves better by fewer epochs: {' '.join(evidence)}",
        NeverPrunesWarning,
        stacklevel=4,
    )
