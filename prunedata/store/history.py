"""The history of a run in its store: a commit writes the records of the last epochs, not those of all.

The pointer holds the records that came last. Once the older ones fill a chunk, they are written to a file, which
never changes as long as a commit refers to it; of these files the pointer has only the number, and one digest. So a
commit takes as long after 10,000 epochs as after 100.

The chunks are those of a zarr array of bytes: JSON, filled up with blanks. It has two slots, as every array has, but
goes to the other one only if the run goes back to an earlier state: what a commit refers to is not written over.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from zarr.abc.store import Store

from prunedata.errors import DamagedStore
from prunedata.store import pointer
from prunedata.store.documents import array_document
from prunedata.store.durable import check_own_folder, check_sizes, is_missing, missing_files, read_bytes, write_bytes

__all__ = ["PLACE", "History"]

PLACE = "past-epochs"
"""Name of the array. Those of a policy have no hyphen, but for the ``open-`` of an open epoch."""
CHANGING = "sketch"
"""What a record loses when a later epoch is pruned (``findings/agreement.py``): it stays in the pointer."""

Record = dict[str, Any]


@dataclass(frozen=True)
class _Written:
    """What is in chunks. Replaced as a whole, so that Ctrl-C leaves what was, or what is."""

    slot: int
    digest: int = 0
    records: Sequence[Record] = ()
    """As the run has them."""
    ends: Sequence[int] = (0,)
    """How many records there are up to the end of each chunk."""
    changing: int | None = None
    """The record that may still lose what is not in its chunk."""

    @property
    def place(self) -> str:
        return f"{PLACE}-{self.slot}"

    @property
    def chunks(self) -> int:
        return len(self.ends) - 1

    def goes_on(self, records: Sequence[Record]) -> Sequence[Record] | None:
        """What was written, among these records, if it is still how they begin; else None."""
        done = len(self.records)
        if not done or (done < len(records) and records[done - 1] is self.records[-1]):
            return self.records
        first = list(records[:done])
        same = done < len(records) and list(map(_fixed, first)) == list(map(_fixed, self.records))
        return first if same else None

    def with_chunk(self, records: Sequence[Record], raw: bytes) -> _Written:
        """With one more chunk, of these records."""
        done = len(self.records)
        changing = [number for number, record in enumerate(records, done) if CHANGING in record]
        return _Written(
            self.slot,
            zlib.crc32(raw, self.digest),
            [*self.records, *records],
            [*self.ends, done + len(records)],
            changing[-1] if changing else self.changing,
        )

    def to_dict(self, records: Sequence[Record]) -> dict[str, Any]:
        """What the pointer says of it, where these are the records now."""
        value = None if self.changing is None else records[self.changing].get(CHANGING)
        changing = None if value is None else [self.changing, value]
        return {"slot": self.slot, "chunks": self.chunks, "crc32": self.digest, "changing": changing}


class History:
    """Writes the records that fill chunks, and reads them.

    Parameters
    ----------
    store : zarr store
    location : str
        What errors call it.
    """

    def __init__(self, store: Store, location: str) -> None:
        self._store, self._location = store, location
        self._written = _Written(0)

    # -- writing

    def write(self, records: Sequence[Record], before: dict[str, Any] | None) -> tuple[dict[str, Any] | None, int]:
        """Write the records that fill chunks; return what the pointer says of these, and how many records they hold.

        Parameters
        ----------
        records : sequence of dict
            Of all finished epochs. The last one may still change.
        before : dict or None
            What the pointer in force says.
        """
        known = self._written.goes_on(records)
        if known is None:
            self._written = _Written(0 if before is None else 1 - before["slot"])
        else:
            self._written = replace(self._written, records=known)
        self._replace_missing()
        while self._written.chunks < pointer.MOST // pointer.HISTORY_CHUNK:
            done = len(self._written.records)
            count = _fitting(records[done:-1])
            if not count:
                break
            self._add(records[done : done + count])
        return (self._written.to_dict(records) if self._written.chunks else None), len(self._written.records)

    def _add(self, records: Sequence[Record]) -> None:
        raw, written = _encoded(records), self._written
        check_own_folder(self._store, written.place)
        write_bytes(self._store, f"{written.place}/c/{written.chunks}", raw)
        self._describe(written.chunks + 1)
        self._written = written.with_chunk(records, raw)

    def _describe(self, chunks: int) -> None:
        about = array_document(np.empty(0, np.uint8), pointer.HISTORY_CHUNK) | {
            "shape": [chunks * pointer.HISTORY_CHUNK]
        }
        write_bytes(self._store, f"{self._written.place}/zarr.json", json.dumps(about).encode())

    def _replace_missing(self) -> None:
        """Write again what is gone of a local store: cleaners of scratch space take files that are old."""
        written = self._written
        for number in missing_files(self._store, f"{written.place}/c", written.chunks):
            raw = _encoded(written.records[written.ends[number] : written.ends[number + 1]])
            write_bytes(self._store, f"{written.place}/c/{number}", raw)
        if written.chunks and is_missing(self._store, f"{written.place}/zarr.json"):
            self._describe(written.chunks)

    # -- reading

    def read(self, about: dict[str, Any] | None, last: list[Record]) -> list[Record]:
        """Return all records, of which the pointer holds the last ones, and go on from these.

        ``about`` was checked by :func:`decode_pointer`. Raises :class:`DamagedStore` if anything is not as written.
        """
        if about is None:
            self._written = _Written(0)
            return last
        place = f"{PLACE}-{about['slot']}"
        try:
            self._written = self._read(about, place)
        except (DamagedStore, ValueError, RecursionError, LookupError, TypeError) as error:
            raise DamagedStore(f"Expected to read {place} in {self._location}. Got damage: {error}") from error
        return [*self._written.records, *last]

    def _read(self, about: dict[str, Any], place: str) -> _Written:
        check_sizes(self._store, f"{place}/c", about["chunks"], pointer.HISTORY_CHUNK)
        with ThreadPoolExecutor() as pool:  # side by side: elsewhere each takes a request
            found = list(pool.map(lambda number: self._read_chunk(f"{place}/c/{number}"), range(about["chunks"])))
        digest, ends = 0, [0]
        records: list[Record] = []
        for raw in found:
            digest = zlib.crc32(raw, digest)
        if digest != about["crc32"]:
            raise DamagedStore("Expected the records of past epochs to match their digest. Got others.")
        for raw in found:
            part = json.loads(raw)
            if not isinstance(part, list):
                raise DamagedStore(f"Expected records of past epochs. Got {type(part).__name__}.")
            records += part
            ends.append(len(records))
        number, value = about["changing"] or (None, None)
        if number is not None:
            records[number][CHANGING] = value
        return _Written(about["slot"], digest, records, ends, number)

    def _read_chunk(self, key: str) -> bytes:
        raw = read_bytes(self._store, key, pointer.HISTORY_CHUNK)
        if raw is None or len(raw) != pointer.HISTORY_CHUNK:
            raise DamagedStore("Expected whole chunks of past epochs. Got one that is missing or cut short.")
        return raw


def _fitting(records: Sequence[Record]) -> int:
    """How many records fill a chunk, so that the next one does not fit; 0 if there are too few, or one is too long."""
    size = 0
    for count, record in enumerate(records):
        size += len(_text(record)) + len(", ")
        if size > pointer.HISTORY_CHUNK:
            return count
    return 0


def _encoded(records: Sequence[Record]) -> bytes:
    return f"[{', '.join(map(_text, records))}]".encode().ljust(pointer.HISTORY_CHUNK)


def _text(record: Record) -> str:
    return json.dumps(_fixed(record))


def _fixed(record: Record) -> Record:
    """What of a record does not change any more."""
    return {name: value for name, value in record.items() if name != CHANGING}
