"""The arrays of a run's store, each in two slots that are written in turn.

They are zarr arrays of one fixed kind: one dimension, little-endian, not compressed. What a stranger's store names
otherwise is refused before any of it is read, so that reading takes as much memory as the files are long.
"""

import json
import re
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
from zarr.abc.store import Store

from prunedata.checks import shown
from prunedata.errors import DamagedStore
from prunedata.store.documents import KINDS, array_document
from prunedata.store.durable import check_own_folder, check_sizes, is_missing, overwrite_bytes, read_bytes, write_bytes

__all__ = ["Slots", "check_about"]

CHUNK = 1 << 24
MOST_METADATA = 1 << 16
NAME = re.compile(r"[^\W\d][\w-]{0,127}")
"""Of an array: a policy's is a word, and within an epoch there is ``open-`` before it. No way out of the folder."""


def check_about(arrays: object, location: str) -> None:
    """Raise :class:`DamagedStore` unless a pointer says of its arrays what can be: name, shape, dtype and digest."""
    if not isinstance(arrays, dict):
        raise DamagedStore(f"Expected names of arrays in {location}/zarr.json. Got {shown(arrays)}.")
    for name, about in arrays.items():
        sound = isinstance(about, dict) and about.keys() == {"shape", "dtype", "crc32"}
        sound = sound and NAME.fullmatch(name) is not None
        if not sound or not _is_shape(about["shape"]) or not _is_kind(about["dtype"]) or not _is_count(about["crc32"]):
            raise DamagedStore(
                f"Expected name, shape, dtype and digest of an array in {location}/zarr.json. "
                f"Got {shown(name)}: {shown(about)}."
            )


class Slots:
    """Writes arrays into the slot that no commit refers to, and reads those of a commit.

    Parameters
    ----------
    store : zarr store
    location : str
        What errors call it.
    """

    def __init__(self, store: Store, location: str) -> None:
        self._store, self._location = store, location
        self._chunks: dict[str, tuple[tuple[int, ...], str, int]] = {}
        """Of each slot that was written: shape and dtype of its array, and samples in a chunk."""

    def write(self, name: str, generation: int, values: npt.NDArray[Any]) -> dict[str, Any]:
        """Write an array of commit number ``generation``; return its shape, dtype and digest."""
        place = f"{name}-{generation % 2}"
        size = self._describe(place, values)
        digest = 0
        for number, first in enumerate(range(0, values.size, size)):
            # What zarr would write, in a third of its time: the bytes, and all chunks of one size.
            chunk = _bytes(values[first : first + size])
            digest = zlib.crc32(chunk, digest)
            overwrite_bytes(self._store, f"{place}/c/{number}", chunk.ljust(size * values.itemsize, b"\0"))
        return {"shape": list(values.shape), "dtype": values.dtype.newbyteorder("<").str, "crc32": digest}

    def _describe(self, place: str, values: npt.NDArray[Any]) -> int:
        """Write the metadata of an array, if this slot does not have them; return the samples in a chunk."""
        shape, kind = values.shape, values.dtype.str
        known = self._chunks.get(place)
        # Its metadata are written once, and cleaners of scratch space take files that are old.
        if known is None or known[:2] != (shape, kind) or is_missing(self._store, f"{place}/zarr.json"):
            # Whatever is there: this slot is not in use, and what was in it may be half written.
            check_own_folder(self._store, place)
            size = min(max(values.size, 1), CHUNK)
            write_bytes(self._store, f"{place}/zarr.json", json.dumps(array_document(values, size)).encode())
            known = self._chunks[place] = shape, kind, size
        return known[2]

    def read(self, name: str, generation: int, about: dict[str, Any]) -> npt.NDArray[Any]:
        """Return an array of commit number ``generation``, or raise :class:`DamagedStore` if it is not as written.

        ``about`` was checked by :func:`check_about`.
        """
        place, samples, kind = f"{name}-{generation % 2}", about["shape"][0], np.dtype(about["dtype"])
        try:
            size = self._samples_in_chunk(place, about)
            check_sizes(self._store, f"{place}/c", -(-samples // size), size * kind.itemsize)
            values, digest = np.empty(samples, kind.newbyteorder("=")), 0
            for first in range(0, samples, size):
                raw = read_bytes(self._store, f"{place}/c/{first // size}", size * kind.itemsize)
                if raw is None or len(raw) != size * kind.itemsize:
                    raise DamagedStore(f"Expected {size} samples in each of its chunks. Got fewer.")
                part = memoryview(raw)[: (samples - first) * kind.itemsize]
                digest = zlib.crc32(part, digest)
                values[first : first + size] = np.frombuffer(part, kind)
        except (DamagedStore, ValueError, RecursionError) as error:
            raise DamagedStore(f"Expected to read {place} in {self._location}. Got damage: {error}") from error
        if digest != about["crc32"]:
            raise DamagedStore(
                f"Expected {place} in {self._location} to match its digest. Got other data: it is damaged."
            )
        return values

    def _samples_in_chunk(self, place: str, about: dict[str, Any]) -> int:
        raw = read_bytes(self._store, f"{place}/zarr.json", MOST_METADATA)
        if raw is None:
            raise DamagedStore("Expected its zarr.json. Got none.")
        found = json.loads(raw)
        try:
            size = found["chunk_grid"]["configuration"]["chunk_shape"][0]
        except (LookupError, TypeError):
            size = None
        if not _is_count(size) or not 1 <= size <= max(1, about["shape"][0]):
            raise DamagedStore(f"Expected chunks as they were written. Got chunks of {shown(size)}.")
        wanted = array_document(np.empty(0, about["dtype"]), size) | {"shape": about["shape"]}
        differ = [key for key in wanted if key not in _FREE and found.get(key) != wanted[key]]
        if differ or found.keys() - wanted.keys():
            raise DamagedStore(
                f"Expected its metadata as they were written. Got other ones: {', '.join(differ) or 'more'}."
            )
        return int(size)

    def check_own_folders(self, names: list[str]) -> None:
        """Raise :class:`StoreError` if a slot of one of these arrays lies elsewhere: nothing is written there."""
        for name in names:
            for slot in (0, 1):
                check_own_folder(self._store, f"{name}-{slot}")


_FREE = ("attributes", "fill_value", "storage_transformers")
"""Metadata that don't say how an array is stored."""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and len(value) == 1 and _is_count(value[0])


def _is_kind(value: object) -> bool:
    return isinstance(value, str) and value in KINDS


def _bytes(values: npt.NDArray[Any]) -> bytes:
    return values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
