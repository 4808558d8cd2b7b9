"""Read the run in a store without changing it, as the commands and the report do."""

from dataclasses import dataclass

from prunedata.errors import ForeignStore
from prunedata.store.run_store import RunStore, StoreLike
from prunedata.store.schema import check_state
from prunedata.store.state import RunState

__all__ = ["StoredRun", "read_run"]


@dataclass(frozen=True, eq=False)
class StoredRun:
    """The state of a run as its store has it, and the number of its commits."""

    state: RunState
    generation: int


def read_run(location: StoreLike) -> StoredRun:
    """Read the run in the store at `location`. It may be in use, and its content is checked, as it may be forged.

    Raises
    ------
    PrunedataError
        If there is no run, or it is damaged.
    """
    store = RunStore(location, mode="r")
    found = store.read(check_state)
    if found is None:
        raise ForeignStore(f"Expected a run at {location}. Got nothing.")
    return StoredRun(RunState.from_json(*found), store.generation)
