"""Join what several processes observed in an epoch, or the states that they saved."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from prunedata.checks import shown
from prunedata.counting.counts import Tally
from prunedata.counting.sample_arrays import SUMS
from prunedata.errors import PrunedataError
from prunedata.store.state import OPEN, RunState
from prunedata.types import Array, Arrays

NOT_ADDED = frozenset({"seconds", "overhead", "place"})
"""What an epoch's meter has of time and place: of several processes the largest value counts."""


def join(
    tally: Tally,
    arrays: Arrays,
    merge: Callable[[Tally], None],
    largest: Callable[[Array], Array],
    total: Callable[[Array], Array] | None = None,
) -> None:
    """Join an epoch's tally and the policies' arrays with those of other processes, in place.

    If no process observed a sample more than once, a sample that several observed, as it pads a share, counts once,
    and is hit if it was in one of them. If one process observed a sample more often, as samplers may repeat some, all
    visits and hits of all processes count, as in one process. For the arrays of policies the largest value is kept;
    sums of losses add up where visits do.

    ``merge`` merges the tally with those of the other processes, in place. ``largest`` takes an array of shape
    (samples,), of int64 or a floating dtype, and returns for each sample the largest value of all processes; it is
    called as often and with the same dtypes in each of them. ``total`` returns the sums in the same way; it is given if
    all visits of all processes count.
    """
    seen = tally.packed != 0 if arrays else np.empty(0)
    merge(tally)
    for name, array in sorted(arrays.items()):  # in the same order in every process
        if total is not None and name in SUMS:
            array[:] = total(array)
            continue
        np.copyto(array, largest(_of_seen(array, seen)).astype(array.dtype), where=tally.packed != 0)


def _of_seen(array: Array, seen: Array) -> Array:
    """Return the values of the samples that a process observed, and the least value for the others."""
    if array.dtype.kind == "f":
        return np.where(seen, array, array.dtype.type(-np.inf))
    return np.where(seen, array.astype(np.int64), np.iinfo(np.int64).min)


def joined(states: Iterable[RunState]) -> RunState:
    """Join the states that the processes of a run have saved, one each, to one state.

    Any number of processes can resume from it. States are read one by one, so that an iterator over many needs the
    memory of two. Raises :class:`PrunedataError` if they are not the states of all processes of one run, each once and
    saved at one moment.
    """
    result: RunState | None = None
    ranks: list[int] = []
    skipped = 0
    bits, repeats = np.zeros(0, dtype=np.uint8), False
    sums: Arrays = {}
    for state in states:
        ranks.append(state.rank)
        skipped += state.skipped - state.left_out
        first = result is None
        if result is None:
            result = state
        else:
            _check_alike(result, state, len(ranks) - 1)
        if state.open:
            tally = _tally(state)
            bits, repeats = tally.bits() if first else bits | tally.bits(), repeats or tally.repeats
            sums = {name: sums.get(name, 0) + state.arrays[name] for name in (OPEN + array for array in SUMS)}
            result = result if first else _merged(result, state)
    if result is None:
        raise PrunedataError("Expected the result of state_dict(). Got an empty list.")
    if result.open and sorted(ranks) != list(range(result.processes)):
        raise PrunedataError(
            f"Expected the states of all {result.processes} ranks, as each has saved what it observed of epoch "
            f"{result.epoch}. Got {_named(ranks)}: load_state_dict() takes a list of them, [state of rank 0, ...]."
        )
    if not result.open:
        return result
    tally = _tally(result)
    if repeats:
        tally.check()
    else:
        tally.set_bits(bits)
        sums = {}  # a sample that several processes observed counts once
    result = replace(result, observed=tally.observed, arrays=result.arrays | sums | {"tally": tally.packed})
    # left_out is that of all processes' loaders in every state; the rest of skipped is each process's own.
    return replace(result, rank=0, processes=1, left_out=0, skipped=result.left_out + skipped)


def _check_alike(first: RunState, state: RunState, place: int) -> None:
    """Raise unless two states are of one run, saved at one moment."""
    fields = ("run", "schedule", "epoch", "open", "processes", "shared")
    differ = [name for name in fields if getattr(first, name) != getattr(state, name)]
    changing = {"tally"} | {name for name in first.arrays if name.startswith(OPEN)} if first.open else set()
    names = (first.arrays.keys() | state.arrays.keys()) - changing
    differ += [name for name in sorted(names) if not _same(first.arrays.get(name), state.arrays.get(name))]
    if differ:
        about = ", ".join(
            f"{name} {shown(getattr(first, name))} and {shown(getattr(state, name))}" if name in fields else name
            for name in differ
        )
        raise PrunedataError(
            f"Expected states that the ranks of one run saved at one moment. Got states number 0 and {place} that "
            f"differ in {about}."
        )


def _same(first: Array | None, second: Array | None) -> bool:
    if first is None or second is None or first.dtype != second.dtype:
        return False
    return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")  # NaN is a sample that was never observed


def _merged(first: RunState, state: RunState) -> RunState:
    """Add the state of one more process, with all of its visits."""
    ours, theirs = _tally(first), _tally(state)
    names = sorted(name for name in first.arrays.keys() | state.arrays.keys() if name.startswith(OPEN))
    arrays = {name: _or_zeros(first, state, name).copy() for name in names}
    others = (_of_seen(_or_zeros(state, first, name), theirs.packed != 0) for name in arrays)  # in the order of join()
    join(
        ours,
        arrays,
        lambda tally: tally.add_up(theirs.packed, theirs.observed),
        lambda values: np.maximum(values, next(others)),
    )
    meter = dict(first.meter)
    for name, value in state.meter.items():
        before = meter.get(name, 0)
        meter[name] = max(before, value) if name in NOT_ADDED else before + value
    return replace(
        first,
        complete=first.complete and state.complete,
        left_out=max(first.left_out, state.left_out),
        unseen=None if first.unseen is None or state.unseen is None else first.unseen + state.unseen,
        observed=ours.observed,
        meter=meter,
        arrays=first.arrays | arrays | {"tally": ours.packed},
    )


def _or_zeros(state: RunState, other: RunState, name: str) -> Array:
    """Return an array of a state; zeros if only the other state has it, as guesses where no logits came."""
    return state.arrays[name] if name in state.arrays else np.zeros_like(other.arrays[name])


def _tally(state: RunState) -> Tally:
    tally = Tally(state.samples)
    tally.packed[:], tally.observed = state.arrays["tally"], state.observed
    return tally


def _named(ranks: list[int]) -> str:
    names = ", ".join(map(str, sorted(ranks)[:8]))
    return f"that of rank {names}" if len(ranks) == 1 else f"those of the ranks {names}{', ...' * (len(ranks) > 8)}"
