"""Where a run is kept: its description, its store, and the checks before it goes on from a state."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from prunedata.checks import whole
from prunedata.errors import ForeignStore, PrunedataError
from prunedata.plan.schedule import Schedule
from prunedata.run.engine import Engine
from prunedata.store.description import check_state
from prunedata.store.state import RunState

if TYPE_CHECKING:
    from prunedata.store.run_store import RunStore, StoreLike

__all__ = ["Keeper"]


class Keeper:
    """Saves an engine's state to a store or a checkpoint, and lets the engine go on from one.

    Parameters
    ----------
    engine : Engine
    run : dict
        What the run was given, as plain values. A state is of this run if its description is the same.
    location : path, URL or zarr store, or None
        Where the run is kept; None keeps it in memory.
    resume : bool
        Go on with the run that is there; if nothing is, begin.
    """

    def __init__(self, engine: Engine, run: dict[str, Any], location: StoreLike | None, resume: bool) -> None:
        self.engine, self.run = engine, run
        self._store: RunStore | None = None
        if location is not None:
            from prunedata.store.run_store import RunStore  # noqa: PLC0415 (zarr takes longer to load than all else)

            self._store = self._open(RunStore(location), resume)
        elif resume:
            raise PrunedataError("Expected a store to resume from. Got resume=True without store=.")

    def _open(self, store: RunStore, resume: bool) -> RunStore:
        try:
            return self._begin(store, resume)
        except BaseException:
            store.release()  # a traceback would keep it, and so the lock
            raise

    def _begin(self, store: RunStore, resume: bool) -> RunStore:
        found = store.read(check_state) if resume else None
        if found is None:
            store.create(self.engine.state(self.run).to_json())
            if self.engine.plan.num_without:
                self._write(store)  # else a run that is killed in its first epoch would forget them
            return store
        state = RunState.from_json(*found)
        if store.generation:
            self.restore(state)
        else:  # created, but stopped before its first epoch was done
            self._schedule_of(state)
        before = 0 if state.without is None else int(state.without.sum())
        # It was lengthened, or more is left out: its store must say so before it goes on.
        if state.run != self.run or before != self.engine.plan.num_without:
            self._write(store)
        return store

    def commit(self) -> None:
        """Write where the run stands to its store, if it has one."""
        if self._store is not None:
            self._write(self._store)

    def _write(self, store: RunStore) -> None:
        self.engine.flush()
        with self.engine.whole:
            state = self.engine.state(self.run)
            store.write(state.described(), state.arrays)

    def checkpoint(self) -> dict[str, Any]:
        """Where the run stands as one dict of plain values."""
        self.engine.flush()
        with self.engine.whole:
            return self.engine.state(self.run).to_checkpoint()

    def standing(self) -> dict[str, Any]:
        """The run's arguments, where it stands, and checksums of what it knows."""
        engine = self.engine
        known = engine.ledger.state(within=False)
        return {
            **self.run,
            "schedule in force": engine.plan.schedule.to_dict(),
            "next epoch": engine.ledger.next_epoch,
            "left out for good": engine.plan.num_without,
            "goes on within an epoch": engine.is_restored,
            **{f"checksum of {name}": zlib.crc32(np.ascontiguousarray(array).data) for name, array in known.items()},
        }

    def restore(self, state: RunState) -> None:
        """Go on from a state. One that is refused changes nothing."""
        schedule = self._schedule_of(state)
        self.engine.ledger.check(state)
        advice = None
        if state.advice is not None:
            from prunedata.findings.advice import Advice  # noqa: PLC0415 (only where a run was advised)

            advice = Advice.from_dict(state.advice)
        self._check_left_out(state)
        whole("the state's epoch", state.epoch, 0, schedule.epochs - state.open)
        whole("the state's excused samples", state.excused, 0)
        self.engine.restore(state, schedule, advice)

    def _check_left_out(self, state: RunState) -> None:
        """Raise if an open epoch was selected among other samples than are left now."""
        plan, before = self.engine.plan, state.without
        plan.included_without(before)  # raises if too few are left
        included = plan.included
        if state.open and included is not None and (~included if before is None else ~included & ~before).any():
            raise PrunedataError(
                f"Expected epoch {state.epoch} to go on as it began. Got more samples to leave out for good: end this "
                "epoch without them, and leave them out from the next one on."
            )

    def _schedule_of(self, state: RunState) -> Schedule:
        """The schedule to go on by. Raises :class:`ForeignStore` if the state is of another run."""
        in_force, given = Schedule.from_dict(state.schedule), state.run.get("schedule")
        if given == self.run["schedule"]:
            state.check_run(self.run)
            return in_force
        try:
            stored = Schedule.from_dict(given)
        except PrunedataError as error:
            raise ForeignStore(f"Expected the state of this run. Got one with no schedule: {error}") from error
        plan = self.engine.plan
        if not plan.lengthens(stored):
            state.check_run(self.run)
        state.check_run(self.run | {"schedule": given})
        longer = plan.lengthened(in_force, stored)
        if state.open and longer.prunes(state.epoch) != in_force.prunes(state.epoch):
            raise PrunedataError(
                f"Expected epoch {state.epoch} to go on as it began. Got a longer schedule, by which it does not "
                f"anneal: end this epoch with the schedule of {stored.epochs} epochs, and then lengthen the run."
            )
        return longer
