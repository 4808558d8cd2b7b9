"""The arrays of a run's store, each in two slots that are written in turn.

They are zarr arrays of one fixed kind, which zarr writes: one dimension, little-endian, not compressed. Arrays of
another kind, as a forged store may have, are refused before they are read, so that reading never takes more memory than
the files are long.
"""

import asyncio
import json
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from zarr.abc.store import Store
from zarr.api.asynchronous import create_array
from zarr.core.array import AsyncArray
from zarr.storage import MemoryStore, StorePath

from prunedata.errors import DamagedStore
from prunedata.store.durable import DurableStore, check_own_folder, finish, is_missing, read_bytes
from prunedata.store.pointer import REMEDY

CHUNK = 1 << 24
MOST_METADATA = 1 << 16
STORED = ("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "codecs")
"""The metadata that decide how an array is stored."""
OF_ONE_BYTE = ([{"name": "bytes"}], [{"name": "bytes", "configuration": {"endian": "little"}}])
"""The codecs of arrays of one byte: zarr before 3.1 names an order of bytes there, too."""


class Slots:
    """Writes arrays into the slot that the last commit does not use, and reads those of a commit.

    Errors call the store ``location``.
    """

    def __init__(self, store: Store, location: str) -> None:
        self._store, self._location = store, location
        self._written: dict[str, AsyncArray[Any]] = {}  # the zarr arrays of the slots that were written

    def write(self, generation: int, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
        """Write the arrays of commit number ``generation``; return shape, dtype and digest of each."""
        places = {name: f"{name}-{generation % 2}" for name in arrays}
        for place in places.values():
            if place not in self._written:
                check_own_folder(self._store, place)
        finish(self._store, self._write_all({places[name]: values for name, values in arrays.items()}))
        return {name: _about(values) for name, values in arrays.items()}

    async def _write_all(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        await StorePath.open(self._store, "")  # once, before the concurrent writes
        # Concurrently: a disk syncs several files in about the time of one. If one fails, wait for the others, so that
        # none is still written during the next commit.
        writes = (self._write(place, values) for place, values in arrays.items())
        for failed in await asyncio.gather(*writes, return_exceptions=True):
            if failed is not None:
                raise failed

    async def _write(self, place: str, values: npt.NDArray[Any]) -> None:
        array, kind = self._written.get(place), values.dtype.newbyteorder("=")
        same = array is not None and (array.shape, array.dtype) == (values.shape, kind)
        # The metadata are written once, and cleaners of scratch space may delete them, as files that are old.
        if array is None or not same or is_missing(self._store, f"{place}/zarr.json"):
            # Overwrite whatever is there: the last commit does not use this slot.
            array = self._written[place] = await _create(self._store, place, values.size, _chunk(values.size), kind)
        # Copy for a store in memory, which would keep the run's own array.
        await array.setitem(slice(None), values.astype(kind, copy=not isinstance(self._store, DurableStore)))

    def read(self, name: str, generation: int, about: dict[str, Any]) -> npt.NDArray[Any]:
        """Return an array of commit number ``generation``, or raise :class:`DamagedStore` if it is not as written.

        ``about`` is its shape, dtype and digest, from a checked pointer.
        """
        place, samples, kind = f"{name}-{generation % 2}", about["shape"][0], np.dtype(about["dtype"])
        try:
            self._check_metadata(place, samples, about["dtype"])
            values, digest = self._read(place, samples, kind)
        except (DamagedStore, ValueError, RecursionError) as error:
            raise DamagedStore(f"Expected to read {place} in {self._location}. Got damage: {error} {REMEDY}") from error
        if digest != about["crc32"]:
            raise DamagedStore(
                f"Expected {place} in {self._location} to match its digest. Got other data: it is damaged. {REMEDY}"
            )
        return values

    def _check_metadata(self, place: str, samples: int, kind: str) -> None:
        raw = read_bytes(self._store, f"{place}/zarr.json", MOST_METADATA)
        if raw is None:
            raise DamagedStore("Expected its zarr.json. Got none.")
        metadata, expected = json.loads(raw), _metadata(samples, _chunk(samples), kind)
        if np.dtype(kind).itemsize == 1 and isinstance(metadata, dict) and metadata.get("codecs") in OF_ONE_BYTE:
            metadata["codecs"] = expected["codecs"]
        differ = [key for key in STORED if not isinstance(metadata, dict) or metadata.get(key) != expected[key]]
        if differ:
            raise DamagedStore(f"Expected its metadata as they were written. Got other ones: {', '.join(differ)}.")

    def _read(self, place: str, samples: int, kind: np.dtype[Any]) -> tuple[npt.NDArray[Any], int]:
        # Not by zarr, which fills in a missing chunk, and reads all of one that is too long.
        size, digest, values = _chunk(samples), 0, np.empty(0, kind.newbyteorder("="))
        for first in range(0, samples, size):
            raw = read_bytes(self._store, f"{place}/c/{first // size}", size * kind.itemsize)
            if raw is None or len(raw) != size * kind.itemsize:
                raise DamagedStore(f"Expected {size} samples in each of its chunks. Got fewer.")
            part = memoryview(raw)[: (samples - first) * kind.itemsize]
            digest = zlib.crc32(part, digest)
            if not first:  # only once a chunk has come: a forged store may name any number of samples
                values = np.empty(samples, values.dtype)
            values[first : first + size] = np.frombuffer(part, kind)
        return values, digest

    def check_own_folders(self, names: list[str]) -> None:
        """Raise :class:`StoreError` if a slot of one of these arrays is a link to another place."""
        for name in names:
            for slot in (0, 1):
                check_own_folder(self._store, f"{name}-{slot}")


def _chunk(samples: int) -> int:
    return min(max(samples, 1), CHUNK)


async def _create(store: Store, place: str, samples: int, size: int, kind: np.dtype[Any]) -> AsyncArray[Any]:
    """Create an array, in the place of one that is there."""
    return await create_array(
        store,
        name=place,
        shape=(samples,),
        chunks=(size,),
        dtype=kind,
        filters=None,
        compressors=None,
        # zarr reads a missing chunk as this value; zeros would look like those of a new run.
        fill_value=np.nan if kind.kind == "f" else int(np.iinfo(kind).max),
        overwrite=True,
        config={"write_empty_chunks": True},
    )


@lru_cache(64)
def _metadata(samples: int, size: int, kind: str) -> dict[str, Any]:
    """Return the metadata that zarr writes for such an array."""
    store = MemoryStore()
    finish(store, _create(store, "x", samples, size, np.dtype(kind).newbyteorder("=")))
    metadata: dict[str, Any] = json.loads(read_bytes(store, "x/zarr.json", MOST_METADATA) or b"")
    return metadata


def _about(values: npt.NDArray[Any]) -> dict[str, Any]:
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return {
        "shape": list(values.shape),
        "dtype": little.dtype.str,
        "crc32": zlib.crc32(np.ascontiguousarray(little).data),
    }
