"""Check the description of a run in a store or a checkpoint: one tree of types and ranges, and what must agree.

The description may be forged. It is checked before anything else is done with it.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from math import isfinite
from typing import Any

import numpy as np

from prunedata.checks import LARGEST, integer, printable, real, shown
from prunedata.errors import PrunedataError
from prunedata.options import OPTIONS, one_of
from prunedata.plan.schedule import Schedule

COUNTING = ("counts", "hits", "visits")  # the arrays that every run has, of any unsigned dtype
UNSIGNED = ("u1", "u2", "u4", "u8")
NUMBERS = (*UNSIGNED, "i1", "i2", "i4", "i8", "f2", "f4", "f8")  # the dtypes that a store can keep
DTYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*COUNTING, "labels"), UNSIGNED), "mean_excess": ("f4",), "tally": ("u4",), "high": ("u2", "u4"),
    "guess": ("u2", "u4"), "label": ("u2",), "waiting": ("f8",), "waiting-step": ("i4",),
    "keys": ("u8",), "without": ("u1",), "held_out": ("u1",), "absent": ("u4",),
}  # fmt: skip
"""The arrays of a run but for those of its policy, and the dtypes that they may have.

Beside counts, labels, guesses and what waits in an open epoch these are the hashes of the samples' keys; which samples
are left out for good; which are held out, in a run that has followed its rows; and in how many epochs a sample was not
in the data, or kept and not observed.
"""
OF_ROWS = ("keys", "without", "held_out", "absent")  # those that an epoch does not change, beside labels
BY_OPTION = {"high": "classes", "labels": "labels"}  # the arrays that a run has with an option, and the option
OPEN = "open-"  # prefix of the names of arrays as the open epoch has changed them
LOST = "lost-"  # prefix of the names of arrays for rows that are not in the data any more
MOST_WINDOWS = 1_000_000
DEEPEST = 16  # most levels of nested values; a policy's parameters have a few
LONGEST_MESSAGE = 600
LONGEST_TIME = 2.0**64
LARGEST_FIGURE = 1e100

Check = Callable[[str, Any], object]
Schema = Check | Mapping[str, Any] | list[Any]
"""A function that checks a name and a value, and raises :class:`PrunedataError`; a dict of schemas by name, where names
with a ``?`` may be missing, and ``*`` stands for all others; or a list of one schema, for each value of a list."""


def check(name: str, value: Any, schema: Schema) -> None:
    """Raise :class:`PrunedataError` unless a value is as a schema says. The error calls it ``name``."""
    if callable(schema):
        schema(name, value)
    elif isinstance(schema, list):
        _of_kind(list)(name, value)
        for number, inner in enumerate(value):
            check(f"{name} {number}", inner, schema[0])
    else:
        _of_kind(dict)(name, value)
        for key in schema:
            if key not in value and key != "*" and not key.endswith("?"):
                raise PrunedataError(f"Expected {name} with {key}. Got none.")
        for key, inner in value.items():
            plain = isinstance(key, str) and key != "*" and not key.endswith("?")
            inner_schema = (schema.get(key) or schema.get(f"{key}?") if plain else None) or schema.get("*")
            if inner_schema is None or not isinstance(key, str):
                raise PrunedataError(f"Expected {name} as this version writes it. Got {shown(key)} as well.")
            check(f"{name}: {printable(key)[:40]}", inner, inner_schema)


def anything(name: str, value: Any) -> None:
    """Accept any value: it is checked elsewhere."""


def dtype_of(orders: str) -> Check:
    """Return a check for the name of a dtype of numbers, in one of the byte orders ``orders``.

    Names of other dtypes, as those of Python's objects, are not even given to numpy.
    """
    names = {np.dtype(order + kind).str for order in orders for kind in NUMBERS}

    def dtype(name: str, value: Any) -> None:
        if not isinstance(value, str) or value not in names:
            raise PrunedataError(f"Expected {name} to be a dtype of numbers. Got {shown(value)}.")

    return dtype


def _of_kind(kind: type) -> Check:
    def of_kind(name: str, value: Any) -> None:
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise PrunedataError(f"Expected {name} to be a {kind.__name__}. Got {shown(value)}.")

    return of_kind


def _whole(low: int = 0, high: int = LARGEST) -> Check:
    def whole(name: str, value: Any) -> None:
        _of_kind(int)(name, value)
        integer(name, value, low, high)

    return whole


def _number(most: float, *, infinite: bool = False, negative: bool = True) -> Check:
    def number(name: str, value: Any) -> None:
        sound = isinstance(value, int | float) and not isinstance(value, bool) and (negative or value >= 0)
        if not sound or not (abs(value) <= most or (infinite and isinstance(value, float))):
            raise PrunedataError(f"Expected {name} to be a number of at most {most:g}. Got {shown(value)}.")

    return number


def _maybe(schema: Schema) -> Check:
    return lambda name, value: None if value is None else check(name, value, schema)


def _plain(name: str, value: Any, left: int = DEEPEST) -> None:
    """Check a value that JSON can hold, whose numbers can be compared and added."""
    if not left:
        raise PrunedataError(f"Expected at most {DEEPEST} levels in {name}. Got more.")
    if isinstance(value, dict):
        for key, inner in value.items():
            _of_kind(str)(f"each name in {name}", key)
            _plain(name, inner, left - 1)
    elif isinstance(value, list):
        for inner in value:
            _plain(name, inner, left - 1)
    else:
        _scalar(name, value)


def _scalar(name: str, value: Any) -> None:
    sound = value is None or isinstance(value, bool | str)
    if isinstance(value, int | float) and not sound:
        sound = isfinite(value) if isinstance(value, float) else -(1 << 63) <= value < 1 << 64
    if not sound:
        raise PrunedataError(f"Expected {name} to be a plain value. Got {shown(value)}.")


def _schedule(name: str, value: Any) -> Schedule:
    _of_kind(dict)(name, value)
    _plain(name, value)
    window = value.get("window")
    if isinstance(window, list | str | dict) and len(window) > MOST_WINDOWS:
        raise PrunedataError(f"Expected at most {MOST_WINDOWS:,} windows in {name}. Got {len(window):,}.")
    return Schedule.from_dict(value)


def _scalar_of(inner: Check) -> Check:
    """Return a check of a scalar that ``inner`` accepts: an array in its place could not be compared."""

    def scalar(name: str, value: Any) -> None:
        _scalar(name, value)
        inner(name, value)

    return scalar


def _class(name: str, value: Any) -> None:
    if not isinstance(value, str) and not (type(value) is int and -(1 << 63) <= value < 1 << 64):
        raise PrunedataError(f"Expected {name} to be a whole number or a name. Got {shown(value)}.")


FLAG, TEXT, COUNT = _of_kind(bool), _of_kind(str), _whole()
FIGURE, AMOUNT = _number(LARGEST_FIGURE), _number(LARGEST_FIGURE, negative=False)
SECONDS = _number(LONGEST_TIME)
POLICY = {"name": TEXT, "tolerance?": _scalar_of(partial(real, low=0.0)), "*": _plain}
RUN = {
    "samples": _whole(1), "prune": COUNT, "schedule": _schedule, "policy": POLICY,
    **{option.name if option.always else f"{option.name}?": _scalar_of(option.plain) for option in OPTIONS},
    "labels?": {"classes": [_class], "checksum": COUNT},
}  # fmt: skip
METER = {
    "seconds": SECONDS, "overhead": SECONDS,
    "loss_sum": _number(LONGEST_TIME, infinite=True),  # losses may be of any size
    **dict.fromkeys(("visits", "figures?", "lower_is_better?", "higher_is_better?", "place?"), COUNT),
    **dict.fromkeys(("held_out_trust?", "held_out_seen?", "held_out_right?", "held_out_judged?"), COUNT),
    **dict.fromkeys(("rises?", "products?", "squares?"), _number(LONGEST_TIME, infinite=True)),
    "figure_sum?": FIGURE,
}  # fmt: skip
RECORD = {
    "number": COUNT, "pruned": FLAG, "kept": COUNT, "observed": COUNT, "seconds": SECONDS, "overhead": SECONDS,
    "mean_loss": _maybe(_number(float(np.finfo(np.float64).max))), "validation?": FIGURE, "lower_is_better?": FLAG,
    "accuracy?": FIGURE, **dict.fromkeys(("would_prune?", "without?", "by_weight?", "held_out?", "high?"), COUNT),
    **dict.fromkeys(("samples?", "lost?", "fresh?"), COUNT), "*": _scalar,
}  # fmt: skip
ADVICE = {
    "verdict": one_of("watch", "prune"), "policy": _maybe(POLICY), "prune": COUNT,
    "schedule": _maybe(_schedule), "saving_percent": AMOUNT, "evidence": [TEXT], "onset": _maybe(COUNT),
    "lost": AMOUNT, "shorter": _maybe(_whole(1)), "doubted": COUNT,
}  # fmt: skip


def _shared(name: str, value: Any) -> None:
    """Check how processes share global batches, or that they share steps."""
    if not (isinstance(value, dict) and len(value) == 1 and value.get("steps") is True):
        check(name, value, SHARED)


def _fingerprint(name: str, value: Any) -> None:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{16}", value):
        raise PrunedataError(f"Expected {name} to be 16 hexadecimal digits. Got {shown(value)}.")


SHARED = {"size": _whole(1), "shuffle": FLAG, "rest": FLAG}
STATE = {
    "run": RUN, "schedule": _schedule, "epoch": COUNT, "open": FLAG, "complete": FLAG, "skipped": COUNT,
    "observed": COUNT, "meter": METER, "history": [RECORD], "advice": _maybe(ADVICE), "rank": COUNT,
    "processes": _whole(1), "left_out": COUNT, "unseen": _maybe(COUNT), "shared": _maybe(_shared),
    "data?": _maybe([_maybe(_fingerprint)]), "sketch?": _maybe(TEXT),
}  # fmt: skip


def check_state(state: object, arrays: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the state that ``RunState.to_json`` wrote, or raise :class:`PrunedataError` saying what is wrong with it.

    ``arrays`` has the ``shape``, a list, and the ``dtype``, as numpy writes it, of each array by name; it is empty
    before the first commit.
    """
    try:
        check("the state of a run", state, STATE)
        _check_agrees(state, arrays)  # type: ignore[arg-type]
    except PrunedataError as error:
        raise PrunedataError(str(error)[:LONGEST_MESSAGE]) from error
    except RecursionError as error:
        raise PrunedataError("Expected a state of a few levels. Got one that is nested too deeply.") from error
    return state  # type: ignore[return-value]


def _check_agrees(state: dict[str, Any], arrays: Mapping[str, Mapping[str, Any]]) -> None:
    run, history, is_open = state["run"], state["history"], state["open"]
    samples, epochs = run["samples"], Schedule.from_dict(state["schedule"]).epochs
    at_most = partial(integer, low=0)
    at_most("prune", run["prune"], high=samples - 1)
    at_most("the state's rank", state["rank"], high=state["processes"] - 1)
    at_most("the number of samples that the state's loaders leave out", state["left_out"], high=state["skipped"])
    done = at_most("the state's epoch", state["epoch"], high=epochs - is_open)
    original = Schedule.from_dict(run["schedule"]).epochs
    if original != epochs:
        raise PrunedataError(f"Expected the schedule in force to have the run's {original} epochs. Got {epochs}.")
    if len(history) != done:
        raise PrunedataError(f"Expected a record of each of {done:,} finished epochs. Got {len(history):,}.")
    for number, record in enumerate(history):
        at_most("the number of the record of an epoch", record["number"], low=number, high=number)
        for name in ("kept", "would_prune", "without", "by_weight", "held_out"):
            at_most(f"{name} of epoch {number}", record.get(name, 0), high=record.get("samples", samples))
    if arrays or done or is_open:
        _check_arrays(arrays, state)


def _check_arrays(arrays: Mapping[str, Mapping[str, Any]], state: Mapping[str, Any]) -> None:
    run, is_open, shared = state["run"], state["open"], state["shared"]
    names = {*arrays, *COUNTING, "mean_excess"}
    names |= {name for name, option in BY_OPTION.items() if run.get(option) is not None}
    if is_open:
        unchanged = {*COUNTING, *OF_ROWS, "labels", "tally"}
        names |= {f"{OPEN}{name}" for name in names - unchanged if not name.startswith((OPEN, LOST))} | {"tally"}
    if is_open and shared is not None:
        names |= {f"{OPEN}waiting"} | ({f"{OPEN}waiting-step"} if "steps" in shared else set())
    lost = arrays.get(f"{LOST}keys")
    for name in sorted(names):
        about, size, kinds = arrays.get(name), run["samples"], DTYPES.get(name.removeprefix(LOST).removeprefix(OPEN))
        if lost is not None and name.startswith(LOST):
            size = lost["shape"][0]
        if about is None or about["shape"] != [size] or not (kinds is None or about["dtype"][1:] in kinds):
            got = "none" if about is None else f"shape {shown(tuple(about['shape']))}, dtype {about['dtype']}"
            wanted = "integers or floats" if kinds is None else " or ".join(np.dtype(kind).name for kind in kinds)
            raise PrunedataError(f"Expected an array {printable(name)} of shape ({size},), {wanted}. Got {got}.")
