"""Where a run is kept: its store is opened, and a state is checked before the run goes on from it."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from prunedata.checks import integer, printable, shown
from prunedata.errors import DamagedStore, ForeignStore, PrunedataError
from prunedata.keys import places_of
from prunedata.options import OPTIONS
from prunedata.plan.schedule import Schedule
from prunedata.run.engine import Engine
from prunedata.run.epoch import Role
from prunedata.run.labels import LABELS
from prunedata.run.ledger import Ledger
from prunedata.store.schema import check_state
from prunedata.store.state import RunState

if TYPE_CHECKING:
    from prunedata.store.run_store import RunStore, StoreLike
    from prunedata.types import Keys

DEFAULTS = {option.name: option.default for option in OPTIONS}  # those of some are not recorded


def keep(engine: Engine, location: StoreLike | None, *, resume: bool | Literal["other data"]) -> None:
    """Let a run be kept in a store from now on; without a location in memory.

    With ``resume`` it goes on with the run that is there; if nothing is, it begins. With "other data" its data set may
    look different.
    """
    if not isinstance(resume, bool | np.bool_) and resume != "other data":
        raise PrunedataError(f'Expected resume to be True, False or "other data". Got {shown(resume)}.')
    engine.identity.accepts_all = resume == "other data"
    if location is None:
        if resume is True:
            raise PrunedataError(
                "Expected a store to resume from. Got resume=True without store=: of several ranks only the one with "
                "the store may resume from it, as by resume=get_rank() == 0."
            )
        return
    from prunedata.store.run_store import RunStore  # noqa: PLC0415 (zarr takes longer to load than all else)

    store = RunStore(location)
    try:
        _begin(engine, store, bool(resume))
    except BaseException:
        engine.store = None
        store.release()  # a traceback would keep it, and so the lock
        raise


def trains_on(engine: Engine, keys: Keys) -> None:
    """Take the keys that the data has, as none were given, and compare them with those that the run was saved with.

    Raises :class:`OtherData` if they differ, and the run does not follow its rows.
    """
    identity = engine.identity
    before = identity.keys
    engine.options.check_named(keys)
    state = engine.state() if before is not None and not np.array_equal(before, keys) else None
    identity.keys, identity.is_told = keys, True
    if state is not None:
        try:
            restore(engine, state)
        except BaseException:
            identity.keys, identity.is_told = before, False
            raise
        engine.commit()


def _begin(engine: Engine, store: RunStore, resume: bool) -> None:
    engine.store = store
    found = store.read(check_state) if resume else None
    if found is None:
        store.create(engine.state().to_json())
        if engine.pruning.num_without:
            engine.commit()  # otherwise a run that is killed in its first epoch would forget them
        return
    described, arrays = found
    state = RunState(**described, arrays=arrays)
    if store.generation:
        restore(engine, state, store.location)
    else:  # created, but stopped before its first epoch was done
        _schedule_of(engine, state)
    before = 0 if state.without is None else int(state.without.sum())
    # It was lengthened, leaves out more, or its rows have moved: record that in the store before it continues.
    same = state.keys is None or engine.identity.keys is None or np.array_equal(state.keys, engine.identity.keys)
    if state.run != engine.options.description or before != engine.pruning.num_without or not same:
        engine.commit()


def shorten(engine: Engine) -> None:
    """Set the length of the stored run to the epochs that are done, after a training that has ended early.

    A run that leaves samples out, or was given a schedule, is not changed.
    """
    done, pruning = engine.ledger.next_epoch, engine.pruning
    ended_early = engine.opened is None and 0 < done < pruning.schedule.epochs
    if engine.store is None or not ended_early or not engine.options.auto or pruning.advice is not None:
        return
    schedule = Schedule.steady(done).to_dict()
    state = engine.state()
    state = replace(state, run=state.run | {"schedule": schedule}, schedule=schedule)
    engine.store.write(state.to_json(), state.arrays)


def standing(engine: Engine) -> dict[str, Any]:
    """Return a run's options, its position, and checksums of its arrays."""
    known, opened = engine.ledger.saved | engine.identity.arrays, engine.opened
    return {
        **engine.options.description,
        "schedule in force": engine.pruning.schedule.to_dict(),
        "next epoch": engine.ledger.next_epoch,
        "left out for good": engine.pruning.num_without,
        "goes on within an epoch": opened is not None and opened.restored is not None,
        **{f"checksum of {name}": zlib.crc32(np.ascontiguousarray(array).data) for name, array in known.items()},
    }


def restore(engine: Engine, state: RunState, location: str | None = None) -> None:
    """Continue a run from a state. A state that is refused changes nothing.

    ``location`` is that of its store: there, an array that is missing or of another dtype is damage.
    """
    state = _of_these_rows(engine, state)
    schedule = _schedule_of(engine, state)
    advice = None
    if state.advice is not None:
        from prunedata.findings.advice import Advice  # noqa: PLC0415 (only where a run was advised)

        advice = Advice.from_dict(state.advice)
    try:
        Ledger(engine.options).check(state)
    except PrunedataError as error:
        if location is None:
            raise
        raise DamagedStore(f"Expected a run of prunedata at {location}. {error}") from error
    _check_left_out(engine, state)
    integer("the state's epoch", state.epoch, 0, schedule.epochs - state.open)
    integer("the state's skipped samples", state.skipped, 0)
    engine.identity.check(state.data)
    engine.restore(state, schedule, advice)


def _of_these_rows(engine: Engine, state: RunState) -> RunState:
    """Return the state for the rows that the run trains on now. Raises :class:`OtherData` if it may not follow them."""
    identity = engine.identity
    now, before = identity.keys, state.keys
    if not identity.is_told or now is None or not state.arrays or (before is None and not identity.follows):
        return state
    if before is not None and np.array_equal(before, now):
        return state
    from prunedata.run.following import followed, moved  # noqa: PLC0415 (only where rows have moved)

    if identity.follows:
        # Any other difference between the two runs is refused as always.
        given = engine.options.description | {"samples": state.run["samples"], "prune": state.run["prune"]}
        if state.run["samples"] == engine.options.samples:
            given["prune"] = engine.options.description["prune"]
        labels = {name: given[name] for name in (LABELS,) if name in given}
        if LABELS in state.run:
            given |= {name: state.run[name] for name in labels}  # of other rows
        _check_run(given, state.run | {"schedule": given["schedule"]})
        _check_labels(engine, state, now)
        state = followed(state, now, Ledger(engine.options).saved, engine.options.prune)
        return replace(state, run=state.run | labels, arrays=state.arrays | engine.options.saved)
    if before is not None and not identity.accepts_all:
        raise moved(before, now)
    return state


def _check_labels(engine: Engine, state: RunState, now: Keys) -> None:
    """Raise :class:`ForeignStore` if a row that the run follows has another label than before."""
    labels, before = engine.options.labels, state.keys
    if labels is None or before is None or LABELS not in state.run or state.labels is None:
        return
    at = places_of(now, before)
    others = np.flatnonzero((at >= 0) & (state.labels[at] != np.array(labels.classes)[labels.numbers]))
    if others.size:
        raise ForeignStore(
            f"Expected the rows that the run follows with the labels that it began with. Got other labels of "
            f"{others.size} of them (ids {', '.join(map(str, others[:5]))}): losses by the old labels say nothing of "
            "the new ones. Give these rows other keys, with which they begin as new rows; or name another store."
        )


def _check_run(given: dict[str, Any], stored: dict[str, Any]) -> None:
    """Raise :class:`ForeignStore` if a stored run is another than the given one, saying what differs."""
    differ = [name for name in {**given, **stored} if given.get(name) != stored.get(name)]
    if not differ:
        return
    told = "; ".join(
        f"{printable(name)}: the stored run has {_in_words(stored, name)}, you gave {_in_words(given, name)}"
        for name in differ
    )
    longer = ""
    if "samples" in differ:
        longer = (
            " If rows were added or removed, a run with keys can follow them: pass keys=... and follow=True; or, if "
            "the wrapped object has names of its own, follow=True and no number of samples."
        )
    elif LABELS in differ and LABELS in given and LABELS in stored:  # both runs know labels, perhaps without labels=
        longer = (
            " These are the labels of the data set, unless labels= passes others: since the run began, rows were moved "
            "or labels changed. Losses by the old labels say nothing of the new ones: after correcting labels, name "
            "another store."
        )
    if differ == ["schedule"]:
        longer = (
            " To lengthen a run, pass the schedule that it began with, with more epochs and nothing else changed; to "
            "end it early, leave its loop by break."
        )
    raise ForeignStore(
        f"Expected the run that the arguments describe. Got another ({told}). To continue it, pass the arguments it "
        f"began with; to train anew, name another store.{longer}"
    )


def _in_words(values: dict[str, Any], name: str) -> str:
    found = values.get(name, DEFAULTS.get(name))
    return "none" if found is None else shown(found)


def _check_left_out(engine: Engine, state: RunState) -> None:
    """Raise if an open epoch was selected among other samples than are left now."""
    pruning, before = engine.pruning, state.without
    pruning.roles_with(before, state.held_out)  # raises if too few are left
    left_out = pruning.roles == Role.LEFT_OUT
    if state.open and (left_out if before is None else left_out & ~before).any():
        raise PrunedataError(
            f"Expected epoch {state.epoch} to go on as it began. Got more samples to leave out for good: end this "
            "epoch without them, and leave them out from the next one on."
        )


def _schedule_of(engine: Engine, state: RunState) -> Schedule:
    """The schedule to go on by. Raises :class:`ForeignStore` if the state is of another run."""
    run, pruning = engine.options.description, engine.pruning
    in_force, given = Schedule.from_dict(state.schedule), state.run.get("schedule")
    if given == run["schedule"]:
        _check_run(run, state.run)
        return in_force
    try:
        stored = Schedule.from_dict(given)
    except PrunedataError as error:
        raise ForeignStore(f"Expected the state of this run. Got one with no schedule: {error}") from error
    _check_run(run, state.run if not pruning.lengthens(stored) else state.run | {"schedule": run["schedule"]})
    longer = pruning.lengthened(in_force, stored, state.epoch + state.open)
    if state.open and longer.prunes(state.epoch) != in_force.prunes(state.epoch):
        raise PrunedataError(
            f"Expected epoch {state.epoch} to go on as it began. Got a longer schedule, by which it does not "
            f"anneal: end this epoch with the schedule of {stored.epochs} epochs, and then lengthen the run."
        )
    return longer
