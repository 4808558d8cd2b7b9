"""The zarr store of a run: each commit is there whole or not at all.

A run's state is a JSON-able description and a few per-sample arrays. The arrays are written in turn into one of
two slots (``counts-0``, ``counts-1``, ...), and only when they are safe does the pointer, an attribute of the root
group, change to name the slot. The pointer is one file, replaced in one step; it holds the whole description, the
digest of every array and one of itself. So a run that is killed at any instant finds its last commit untouched,
nothing has ever to be cleaned up, and what zarr reads without a word (a missing chunk is zeros, a swapped one is
somebody else's data) does not pass for a state.
"""

import json
import secrets
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import zarr
from zarr.storage import StorePath

from prunedata.errors import DamagedStore, ForeignStore, RunExists, StoreError
from prunedata.store.durable import StoreLike, list_names, open_location, read_bytes, write_bytes
from prunedata.types import Arrays

__all__ = ["Arrays", "RunStore", "State", "StoreLike"]

State = dict[str, Any]

FORMAT = 1
ATTRIBUTE = "prunedata"
CHUNK = 1 << 24


class RunStore:
    """The store of one run.

    Parameters
    ----------
    location : path, URL or zarr store
        A local folder, a URL that zarr understands (``s3://...``), or any ``zarr.abc.store.Store``.
    mode : {"a", "r"}
        ``"r"`` reads only.
    """

    def __init__(self, location: StoreLike, mode: Literal["a", "r"] = "a") -> None:
        self.location = str(location)
        self._store = open_location(location, read_only=mode == "r")
        self._writer = secrets.token_hex(8)
        self._pointer: dict[str, Any] | None = None
        self._raw = b""
        self._open_arrays: dict[str, zarr.Array[Any]] = {}

    @property
    def generation(self) -> int:
        """How often the run was committed, as last read or written."""
        return int(self._pointer["generation"]) if self._pointer is not None else 0

    def read(self) -> tuple[State, Arrays] | None:
        """Return the last committed state and its arrays, or None if nothing of a run is there.

        Raises
        ------
        ForeignStore
            If something else lies there.
        DamagedStore
            If any part of the last commit is missing, of another shape or dtype, or does not match its digest.
        """
        while True:
            pointer = self._read_pointer()
            if pointer is None:
                return None
            generation, about = pointer["generation"], pointer["arrays"]
            try:
                arrays = {name: self._read_array(name, generation, about[name]) for name in about}
            except DamagedStore:
                if self._get_raw() == self._raw:
                    raise
                continue  # the run is alive, and has committed twice meanwhile: what was read is its past
            self._pointer = pointer
            return pointer["state"], arrays

    def create(self, state: State) -> None:
        """Begin a run here: generation 0, which has no arrays.

        Raises
        ------
        RunExists, ForeignStore, DamagedStore
            If anything is there. It stays as it was.
        """
        pointer = self._read_pointer()
        if pointer is not None:
            raise RunExists(
                f"Expected an empty place for a new run. Got {self.location}, which holds a run that has reached "
                f"epoch {pointer['state'].get('epoch')}. Pass resume=True to go on with it, or name another store."
            )
        self._point(0, state, {})

    def write(self, state: State, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Commit: the state is durable when this returns, and the one before is there until then."""
        if self._pointer is None:
            raise StoreError("Expected a store that was created or read before it is written.")
        if self._get_raw() != self._raw and not self._is_own():
            raise StoreError(
                f"Expected {self.location} as this run left it. Another process has written to it since: "
                "give each run its own store, and stop the other run before you resume this one."
            )
        generation = self._pointer["generation"] + 1
        # Side by side: a disk makes several files safe in about the time that it takes for one.
        with ThreadPoolExecutor() as pool:
            written = pool.map(lambda name: self._write_array(name, generation, arrays[name]), arrays)
            about = dict(zip(arrays, written, strict=True))
        self._point(generation, state, about)

    def _is_own(self) -> bool:
        """Whether what is there is our own: a commit that was interrupted when it was just made. Take it over then."""
        known, pointer = self._raw, self._read_pointer()
        if pointer is None or pointer["writer"] != self._writer:
            self._raw = known
            return False
        self._pointer = pointer
        return True

    def _read_pointer(self) -> dict[str, Any] | None:
        raw = self._get_raw()
        if raw is None:
            self._refuse_leftovers()
            return None
        try:
            node = json.loads(raw)
        except ValueError as error:
            raise DamagedStore(f"Expected JSON in {self.location}/zarr.json. Got {error}.") from error
        attributes = node.get("attributes") if isinstance(node, dict) else None
        if not isinstance(attributes, dict) or ATTRIBUTE not in attributes:
            raise ForeignStore(
                f"Expected a run of prunedata at {self.location}. Got a zarr node of another kind: name another place."
            )
        pointer = attributes[ATTRIBUTE]
        if not isinstance(pointer, dict) or pointer.get("format") != FORMAT:
            found = pointer.get("format") if isinstance(pointer, dict) else pointer
            raise ForeignStore(
                f"Expected a store of format {FORMAT} at {self.location}. Got format {found!r}: "
                "it was written by another version of prunedata, or it is damaged."
            )
        if pointer.get("digest") != _pointer_digest(pointer) or not _is_group(node):
            raise DamagedStore(f"Expected {self.location}/zarr.json to match its digest. Got another: it is damaged.")
        self._raw = raw
        return pointer

    def _get_raw(self) -> bytes | None:
        return read_bytes(self._store, "zarr.json")

    def _refuse_leftovers(self) -> None:
        """Without a pointer, anything but a first write that was cut short is not ours to begin a run on."""
        found = [name for name in list_names(self._store) if not _is_first_write(name)]
        if any(name.endswith(("-0", "-1")) for name in found):
            raise DamagedStore(
                f"Expected zarr.json in {self.location}. It is missing, though arrays of a run are there: "
                "restore it from a copy, or name another store."
            )
        if found:
            raise ForeignStore(f"Expected an empty place or a run at {self.location}. Got {', '.join(found[:5])}.")

    def _point(self, generation: int, state: State, arrays: dict[str, Any]) -> None:
        pointer = {
            "format": FORMAT,
            "generation": generation,
            "writer": self._writer,
            "arrays": arrays,
            "state": state,
        }
        body = json.dumps(pointer)
        pointer["digest"] = zlib.crc32(body.encode())
        signed = f'{body[:-1]}, "digest": {pointer["digest"]}}}'  # a long history takes a while to encode twice
        # The document of a zarr group, written as one value: zarr's own update reads, merges and writes it.
        raw = f'{{"zarr_format": 3, "node_type": "group", "attributes": {{"{ATTRIBUTE}": {signed}}}}}'.encode()
        write_bytes(self._store, "zarr.json", raw)
        self._raw, self._pointer = raw, pointer

    def _write_array(self, name: str, generation: int, values: npt.NDArray[Any]) -> dict[str, Any]:
        place = f"{name}-{generation % 2}"
        values = np.ascontiguousarray(values)
        array = self._open_arrays.get(place)
        if array is None or array.shape != values.shape or array.dtype != values.dtype:
            # Made anew, whatever is there: this slot is not in use, and what was in it may be half written.
            array = self._open_arrays[place] = zarr.create_array(
                self._store,
                name=place,
                shape=values.shape,
                dtype=values.dtype,
                chunks=(min(max(values.size, 1), CHUNK),),
                compressors=None,
                # A missing chunk reads as this value; zeros would look like a fresh run.
                fill_value=np.nan if values.dtype.kind == "f" else np.iinfo(values.dtype).max,
                overwrite=True,
                config={"write_empty_chunks": True},
            )
        digest, (size,) = 0, array.chunks
        for number, first in enumerate(range(0, values.size, size)):
            # What zarr would write, in a third of its time: the bytes, and all chunks of one size.
            chunk = _bytes(values[first : first + size])
            digest = zlib.crc32(chunk, digest)
            write_bytes(self._store, f"{place}/c/{number}", chunk.ljust(size * values.itemsize, b"\0"))
        return {"shape": list(values.shape), "dtype": values.dtype.str, "crc32": digest}

    def _read_array(self, name: str, generation: int, about: dict[str, Any]) -> npt.NDArray[Any]:
        place = f"{name}-{generation % 2}"
        try:
            array = zarr.Array.open(StorePath(self._store, place))
            if list(array.shape) != about["shape"] or array.dtype != np.dtype(about["dtype"]):
                found = f"shape {list(array.shape)}, dtype {array.dtype.str}"
                wanted = f"shape {about['shape']}, dtype {about['dtype']}"
                raise DamagedStore(f"Expected {wanted} of {place} in {self.location}. Got {found}.")
            values = np.asarray(array[:])
        except DamagedStore:
            raise
        except Exception as error:  # zarr raises what its codecs and parsers raise
            raise DamagedStore(f"Expected to read {place} in {self.location}. Got {error!r}: it is damaged.") from error
        if _digest(values) != about["crc32"]:
            raise DamagedStore(
                f"Expected {place} in {self.location} to match its digest. Got other data: it is damaged."
            )
        return values


def _is_first_write(name: str) -> bool:
    """Whether a file is what a run leaves that is killed while it writes its first pointer."""
    return name.startswith("zarr.") and name.endswith(".partial")


def _digest(values: npt.NDArray[Any]) -> int:
    digest = 0
    for first in range(0, values.size, CHUNK):
        digest = zlib.crc32(_bytes(values[first : first + CHUNK]), digest)
    return digest


def _bytes(values: npt.NDArray[Any]) -> bytes:
    return values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()


def _is_group(node: dict[str, Any]) -> bool:
    return node.get("zarr_format") == 3 and node.get("node_type") == "group"


def _pointer_digest(pointer: dict[str, Any]) -> int:
    body = {key: value for key, value in pointer.items() if key != "digest"}
    return zlib.crc32(json.dumps(body).encode())
