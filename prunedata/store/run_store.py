"""The zarr store of a run, in which each commit happens whole or not at all.

A run's state is a JSON-able description and a few per-sample arrays. The arrays are written in turn into one of two
slots (``counts-0``, ``counts-1``, ...). Once they are durable, the pointer, an attribute of the root group, is changed
to name the slot. The pointer is one file, replaced in one step; it has the description, the history, the digest of
every array and one of itself. So a run that is killed at any moment finds its last commit untouched, and the next
commit overwrites or removes what was half written. Damage that zarr reads silently (a missing chunk as zeros, a
replaced one as it is) does not match the digest.

A run has one writer. In a local folder the first process to open it holds a lock until it ends, and a second gets a
:class:`StoreError`. Elsewhere, as on object stores, and between machines that share a folder, each commit compares
the pointer with the one that it wrote last: of two writers the later one to commit gets the error, unless both commit
at the same moment.
"""

import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import numpy.typing as npt

from prunedata.checks import shown
from prunedata.errors import DamagedStore, ForeignStore, PrunedataError, RunExists, StoreError
from prunedata.store.durable import DurableStore, make_folder, read_bytes, write_bytes
from prunedata.store.location import StoreLike, explain_errors, open_location, refuse_leftovers
from prunedata.store.lock import WriteLock
from prunedata.store.pointer import MOST, Records, decode_pointer, encode_pointer
from prunedata.store.schema import check_state
from prunedata.store.slots import Slots
from prunedata.store.state import RunState
from prunedata.types import Arrays

__all__ = ["Arrays", "RunStore", "State", "StoreLike", "StoredRun", "read_run"]

State = dict[str, Any]
Check = Callable[[State, dict[str, Any]], object]
"""Raises :class:`PrunedataError` unless a state, and the shapes and dtypes of its arrays, are those of a run."""


class RunStore:
    """The store of one run: a local folder, a URL that zarr understands (``s3://...``), or a ``zarr.abc.store.Store``.

    With mode ``"r"`` it only reads, and needs no lock.
    """

    def __init__(self, location: StoreLike, mode: Literal["a", "r"] = "a") -> None:
        self.location = str(location)
        with explain_errors(self.location, "read" if mode == "r" else "write"):
            self._store = open_location(location, read_only=mode == "r")
        self._folder: DurableStore | None = None
        """The store, if it is a local folder that is opened to be written: it is locked, swept and synced."""
        if isinstance(self._store, DurableStore) and not self._store.read_only:
            self._folder = self._store
        self._lock: WriteLock | None = None
        self._process = os.getpid()
        self._writer = secrets.token_hex(8)
        self._pointer: dict[str, Any] | None = None
        self._raw = b""
        self._slots = Slots(self._store, self.location)
        self._records = Records()

    @property
    def generation(self) -> int:
        """Number of commits of the run, as last read or written."""
        return int(self._pointer["generation"]) if self._pointer is not None else 0

    def read(self, check: Check | None = None) -> tuple[State, Arrays] | None:
        """Return the last committed state and its arrays, or None if nothing of a run is there.

        ``check`` is called with the state, and the shape and dtype of each array by name, before any array is read.
        Raises :class:`ForeignStore` if it is not the store of a run; :class:`DamagedStore` if any part of the last
        commit is missing, of another shape or dtype, or does not match its digest; and :class:`StoreError` if another
        process has it open for writing, or the system refuses.
        """
        with self._explain_errors("read"):
            self._open_alone()
            while True:
                pointer = self._read_pointer()
                if pointer is None:
                    return None
                try:
                    commit = self._read_commit(pointer, check)
                except DamagedStore:
                    if self._get_raw() == self._raw:
                        raise
                    continue  # the run is in use, and has overwritten the slot meanwhile by two commits
                self._pointer = pointer
                self._claim()
                return commit

    def _read_commit(self, pointer: dict[str, Any], check: Check | None) -> tuple[State, Arrays]:
        generation, about, state = pointer["generation"], pointer["arrays"], pointer.pop("state")
        if check is not None:
            try:
                check(state, about)
            except PrunedataError as error:
                raise DamagedStore(f"Expected a run of prunedata at {self.location}. {error}") from error
        if self._lock is not None:
            self._slots.check_own_folders(list(about))
        return state, {name: self._slots.read(name, generation, about[name]) for name in about}

    def create(self, state: State) -> None:
        """Begin a run in an empty place: generation 0, which has no arrays.

        Raises :class:`RunExists`, :class:`ForeignStore` or :class:`DamagedStore` if the place is not empty, which stays
        as it was; and :class:`StoreError` if another process has it open for writing.
        """
        with self._explain_errors("write"):
            self._open_alone()
            pointer = self._read_pointer()
            if pointer is not None:
                reached = f"reached epoch {shown(pointer['state'].get('epoch'))}"
                if not pointer["generation"]:
                    reached = "saved nothing, as it stopped before"
                raise RunExists(
                    f"Expected an empty place for a new run. Got {self.location}, which has a run that has {reached}. "
                    "Pass resume=True to resume it; to begin anew, name another store, or delete this one."
                )
            self._claim()
            self._point(0, state, {})

    def write(self, state: State, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Commit a state. It is durable when this returns; until then the last commit is kept."""
        if self._pointer is None:
            raise StoreError("Expected a store that was created or read before it is written.")
        with self._explain_errors("write"):
            self._check_alone()
            generation = self.generation + 1  # of the last commit, which _check_alone() may have found
            self._point(generation, state, self._slots.write(generation, arrays))

    def _explain_errors(self, verb: str) -> AbstractContextManager[None]:
        return explain_errors(self.location, verb, remote=not isinstance(self._store, DurableStore))

    def release(self) -> None:
        """Release the lock, so that other processes may write. This one must not write any more."""
        if self._lock is not None:
            self._lock.release()

    def _open_alone(self) -> None:
        """Lock the store, if it can be locked, and is not locked yet."""
        if self._folder is not None and self._lock is None:
            with self._explain_errors("write"):
                make_folder(self._folder.root)
                self._folder.check_writable()
                self._lock = WriteLock(self._folder.root)

    def _claim(self) -> None:
        """Become the one writer, and clean up after writers that were killed."""
        if self._folder is not None and self._lock is not None:
            if self._lock.claim():
                self._folder.sweep()
            self._folder.sync_names()

    def _check_alone(self) -> None:
        """Raise :class:`StoreError` if this is no longer the one writer, or the store was deleted."""
        if os.getpid() != self._process:
            raise StoreError(
                f"Expected commits to {self.location} from the process that opened it. Got one from a forked child: "
                "commit in the parent only."
            )
        if self._lock is not None:
            self._lock.check()
        raw = self._get_raw()
        if raw is None:
            raise StoreError(
                f"Expected {self.location} as this run left it. Got nothing: the store was deleted or moved during the "
                "run. To lose nothing, load this run's state_dict() into a Pruner with another store."
            )
        if raw != self._raw:
            pointer = decode_pointer(raw, self.location)
            if pointer["writer"] != self._writer:
                raise StoreError(
                    f"Expected {self.location} as this run left it. Another process has written to it since: "
                    "give each run its own store, and stop the other run before you resume this one."
                )
            self._raw, self._pointer = raw, pointer  # our own commit, which was interrupted at its end

    def _read_pointer(self) -> dict[str, Any] | None:
        raw = self._get_raw()
        if raw is None:
            refuse_leftovers(self._store, self.location)
            return None
        pointer = decode_pointer(raw, self.location)
        self._raw = raw
        return pointer

    def _get_raw(self) -> bytes | None:
        return read_bytes(self._store, "zarr.json", MOST)

    def _point(self, generation: int, state: State, arrays: dict[str, Any]) -> None:
        pointer, raw = encode_pointer(generation, self._writer, arrays, state, self._records)
        write_bytes(self._store, "zarr.json", raw)
        self._raw, self._pointer = raw, pointer


@dataclass(frozen=True, eq=False)
class StoredRun:
    """The state of a run as its store has it, and the number of its commits."""

    state: RunState
    generation: int


def read_run(location: StoreLike) -> StoredRun:
    """Read the run in the store at `location`. It may be in use, and its content is checked, as it may be forged.

    Raises :class:`PrunedataError` if there is no run, or it is damaged.
    """
    store = RunStore(location, mode="r")
    found = store.read(check_state)
    if found is None:
        raise ForeignStore(f"Expected a run at {location}. Got nothing.")
    state, arrays = found
    return StoredRun(RunState(**state, arrays=arrays), store.generation)
