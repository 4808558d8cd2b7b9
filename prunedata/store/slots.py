"""The arrays of a run's store, each in two slots that are written in turn."""

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.abc.store import Store
from zarr.storage import StorePath

from prunedata.errors import DamagedStore
from prunedata.store.durable import is_missing, overwrite_bytes

__all__ = ["Slots"]

CHUNK = 1 << 24


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
        self._open_arrays: dict[str, zarr.Array[Any]] = {}

    def write(self, name: str, generation: int, values: npt.NDArray[Any]) -> dict[str, Any]:
        """Write an array of commit number ``generation``; return its shape, dtype and digest."""
        place = f"{name}-{generation % 2}"
        values = np.ascontiguousarray(values)
        size = self._open(place, values).chunks[0]
        digest = 0
        for number, first in enumerate(range(0, values.size, size)):
            # What zarr would write, in a third of its time: the bytes, and all chunks of one size.
            chunk = _bytes(values[first : first + size])
            digest = zlib.crc32(chunk, digest)
            overwrite_bytes(self._store, f"{place}/c/{number}", chunk.ljust(size * values.itemsize, b"\0"))
        return {"shape": list(values.shape), "dtype": values.dtype.str, "crc32": digest}

    def _open(self, place: str, values: npt.NDArray[Any]) -> zarr.Array[Any]:
        array = self._open_arrays.get(place)
        fits = array is not None and array.shape == values.shape and array.dtype == values.dtype
        # Its metadata are written once, and cleaners of scratch space take files that are old.
        if array is None or not fits or is_missing(self._store, f"{place}/zarr.json"):
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
        return array

    def read(self, name: str, generation: int, about: dict[str, Any]) -> npt.NDArray[Any]:
        """Return an array of commit number ``generation``, or raise :class:`DamagedStore` if it is not as written."""
        place = f"{name}-{generation % 2}"
        try:
            array = zarr.Array.open(StorePath(self._store, place))
            if list(array.shape) != about["shape"] or array.dtype != np.dtype(about["dtype"]):
                found = f"shape {list(array.shape)}, dtype {array.dtype.str}"
                wanted = f"shape {about['shape']}, dtype {about['dtype']}"
                raise DamagedStore(f"Expected {wanted} of {place} in {self._location}. Got {found}.")
            values = np.asarray(array[:])
        except DamagedStore:
            raise
        except Exception as error:  # zarr raises what its codecs and parsers raise
            raise DamagedStore(
                f"Expected to read {place} in {self._location}. Got {error!r}: it is damaged."
            ) from error
        if _digest(values) != about["crc32"]:
            raise DamagedStore(
                f"Expected {place} in {self._location} to match its digest. Got other data: it is damaged."
            )
        return values


def _digest(values: npt.NDArray[Any]) -> int:
    digest = 0
    for first in range(0, values.size, CHUNK):
        digest = zlib.crc32(_bytes(values[first : first + CHUNK]), digest)
    return digest


def _bytes(values: npt.NDArray[Any]) -> bytes:
    return values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
