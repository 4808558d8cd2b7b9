"""The run in a store, read without touching it: by the commands, the report and everything else that only looks."""

from dataclasses import dataclass

from prunedata.errors import ForeignStore
from prunedata.store.run_store import RunStore, StoreLike
from prunedata.store.schema import check_state
from prunedata.store.state import RunState

__all__ = ["StoredRun", "read_run"]


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A run as its store holds it: where it stands, and how often it was committed."""

    state: RunState
    generation: int


def read_run(location: StoreLike) -> StoredRun:
    """Read the run kept at `location`. It may be running, and may be from anybody: nothing in it is trusted.

    Raises
    ------
    PrunedataError
        If no run is there, or it is damaged.
    """
    store = RunStore(location, mode="r")
    found = store.read(check_state)
    if found is None:
        raise ForeignStore(f"Expected a run at {location}. Got nothing.")
    return StoredRun(RunState.from_json(*found), store.generation)
