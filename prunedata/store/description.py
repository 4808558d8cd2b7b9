"""What a store or a checkpoint says of a run, checked before anything is made of it or read by it.

It may come from anybody. After these checks every part is of its type and in its range, and the parts agree.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np

from prunedata.checks import integer, printable, real, shown
from prunedata.errors import PrunedataError
from prunedata.options import OPTIONS
from prunedata.plan.schedule import Schedule

__all__ = ["COUNTING", "KINDS", "check_state"]

COUNTING = ("counts", "hits", "visits")
"""The arrays that every run has, of any unsigned dtype."""
KINDS: dict[str, type] = {
    "run": dict, "schedule": dict, "epoch": int, "open": bool, "complete": bool, "excused": int, "observed": int,
    "meter": dict, "history": list,
}  # fmt: skip
"""What every state says."""
MOST_WINDOWS = 1_000_000
DEEPEST = 16
"""Levels of what is in one another; a policy's parameters have a few."""
LONGEST_MESSAGE = 600


def check_state(state: object, arrays: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the state of a run as it is, or raise :class:`PrunedataError` saying what is wrong with it.

    Parameters
    ----------
    state : object
        As ``RunState.to_json`` gave it.
    arrays : mapping
        ``shape``, a list, and ``dtype``, as numpy writes it, of each array by name; none before the first commit.
    """
    try:
        return _checked(state, arrays)
    except PrunedataError as error:
        raise PrunedataError(str(error)[:LONGEST_MESSAGE]) from error
    except RecursionError as error:
        raise PrunedataError("Expected a state of a few levels. Got one that is too deep.") from error


def _checked(state: object, arrays: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    if not isinstance(state, dict):
        raise PrunedataError(f"Expected the state of a run. Got {type(state).__name__}.")
    for name, kind in KINDS.items():
        value = state.get(name)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise PrunedataError(f"Expected the state of a run, {name} being a {kind.__name__}. Got {shown(value)}.")
    advice = state.get("advice")
    if advice is not None and not isinstance(advice, dict):
        raise PrunedataError(f"Expected the state of a run, advice being a dict. Got {shown(advice)}.")
    processes = integer("the state's processes", state.get("processes", 1), 1)
    integer("the state's rank", state.get("rank", 0), 0, processes - 1)
    excused = integer("the state's excused samples", state["excused"], 0)
    integer("what the state's loaders leave out", state.get("left_out", 0), 0, excused)
    integer("what the state's process did not observe", state.get("unseen", 0), 0)
    integer("the state's observed samples", state["observed"], 0)
    shared = state.get("shared", {"steps": True})
    if shared != {"steps": True}:
        told = shared if isinstance(shared, dict) else {}
        if told.keys() != {"size", "shuffle", "rest"} or {type(told["shuffle"]), type(told["rest"])} != {bool}:
            raise PrunedataError(
                f"Expected the size of the state's global batches, and whether to shuffle. Got {shown(shared)}."
            )
        integer("the size of the state's global batches", shared["size"], 1, 1 << 53)
    if not all(isinstance(record, dict) for record in state["history"]):
        raise PrunedataError("Expected the state of a run, each record of its history being a dict. Got others.")
    samples, epochs = _check_run(state["run"], state["schedule"])
    done = integer("the state's epoch", state["epoch"], 0, epochs - state["open"])
    _check_history(state["history"], done, samples)
    _check_meter(state["meter"])
    for name in state.keys() - {"history"}:
        _check_depth(name, state[name], DEEPEST)
    if arrays or done or state["open"]:
        _check_arrays(arrays, samples, open=state["open"])
    return state


def _check_meter(meter: dict[str, Any]) -> None:
    for name in ("seconds", "overhead", "loss_sum"):
        value = meter.get(name)
        if not (_is_number(value) or (name == "loss_sum" and isinstance(value, float))):  # losses may be of any size
            raise PrunedataError(f"Expected a number for {name} in the state's meter. Got {shown(meter)}.")
    for name in ("visits", "figures", "aside_trust", "aside_seen"):
        integer(f"{name} in the state's meter", meter.get(name, 0), 0)
    if not (_is_figure(meter.get("figure_sum", 0.0)) and isinstance(meter.get("lower_is_better", False), bool)):
        raise PrunedataError(f"Expected a validation figure in the state's meter. Got {shown(meter)}.")


def _check_run(run: dict[str, Any], in_force: object) -> tuple[int, int]:
    """Check what a run was given; return how many samples and epochs."""
    samples = integer("samples", run.get("samples"), 1)
    integer("prune", run.get("prune"), 0, samples - 1)
    for option in OPTIONS:
        option.plain(option.name, run.get(option.name, None if option.always else option.default))
    policy = run.get("policy")
    if not isinstance(policy, dict) or not isinstance(policy.get("name"), str):
        raise PrunedataError(f"Expected a policy with a name. Got {shown(policy)}.")
    real("the policy's tolerance", policy.get("tolerance", 0.0), 0.0)
    epochs = [_schedule(found).epochs for found in (run.get("schedule"), in_force)]
    if epochs[0] != epochs[1]:
        raise PrunedataError(f"Expected a schedule of {epochs[0]} epochs in force, as was given. Got {epochs[1]}.")
    return samples, epochs[0]


def _schedule(found: object) -> Schedule:
    window = found.get("window") if isinstance(found, dict) else None
    if isinstance(window, list | str | dict) and len(window) > MOST_WINDOWS:
        raise PrunedataError(f"Expected at most {MOST_WINDOWS:,} windows in a schedule. Got {len(window):,}.")
    if not isinstance(found, dict):
        raise PrunedataError(f"Expected a schedule. Got {shown(found)}.")
    return Schedule.from_dict(found)


def _check_history(history: list[dict[str, Any]], done: int, samples: int) -> None:
    if len(history) != done:
        raise PrunedataError(f"Expected a record of each of {done:,} finished epochs. Got {len(history):,}.")
    for number, record in enumerate(history):
        if not _is_record(record, number, samples):
            raise PrunedataError(
                f"Expected a record of epoch {number}, each figure a number in its range. Got {shown(record)}."
            )


def _is_record(record: dict[str, Any], number: int, samples: int) -> bool:
    mean = record.get("mean_loss", "")
    return (
        type(record.get("number")) is int
        and record["number"] == number
        and isinstance(record.get("pruned"), bool)
        and _is_count(record.get("kept"), samples)
        and _is_count(record.get("would_prune", 0), samples)
        and _is_count(record.get("without", 0), samples)
        and _is_count(record.get("by_weight", 0), samples)
        and _is_count(record.get("observed", 0), 1 << 53)
        and _is_count(record.get("high", 0), 1 << 53)
        and _is_count(record.get("aside", 0), samples)
        and _is_figure(record.get("validation", 0))
        and isinstance(record.get("lower_is_better", False), bool)
        and _is_number(record.get("seconds"))
        and _is_number(record.get("overhead"))
        and (mean is None or isinstance(mean, float) or _is_number(mean))
        and all(value is None or isinstance(value, bool | int | float | str) for value in record.values())
    )


def _is_count(value: object, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _is_number(value: object) -> bool:
    """Whether it is a number that can be added to others, and told as a time."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -(2.0**64) <= value <= 2.0**64


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _check_depth(name: str, value: object, left: int) -> None:
    if not left:
        raise PrunedataError(f"Expected at most {DEEPEST} levels in the state's {shown(name)}. Got more.")
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_depth(name, inner, left - 1)


def _check_arrays(arrays: Mapping[str, Mapping[str, Any]], samples: int, *, open: bool) -> None:
    needed = dict.fromkeys(COUNTING, "u") | {"mean_excess": "f"} | ({"tally": "u"} if open else {})
    for name, kind in {**dict.fromkeys(arrays, "iuf"), **({"high": "u"} if "high" in arrays else {}), **needed}.items():
        about = arrays.get(name)
        if about is None or about["shape"] != [samples] or np.dtype(about["dtype"]).kind not in kind:
            found = "none" if about is None else f"shape {shown(tuple(about['shape']))}, dtype {about['dtype']}"
            kinds = {"u": "unsigned", "f": "floats"}.get(kind, "integers or floats")
            raise PrunedataError(f"Expected an array {printable(name)} of shape ({samples},), {kinds}. Got {found}.")
