"""The pointer of a run's store: one JSON file that names the arrays of the last commit, with a digest of itself.

It is the zarr.json of a zarr group. An attribute of the group has the run: the description, the history, and the
digests of the arrays.
"""

import json
import re
import zlib
from collections.abc import Sequence
from typing import Any

from prunedata.checks import shown
from prunedata.errors import DamagedStore, ForeignStore, PrunedataError, StoreError
from prunedata.store.schema import COUNT, TEXT, anything, check, dtype_of

FORMAT = 5
ATTRIBUTE = "prunedata"
MOST = 1 << 26  # largest pointer in bytes: some 300,000 epochs. Decoded, a forged one may take 25 times as much memory.
NAME = re.compile(r"[^\W\d][\w-]{0,127}")
"""Names of arrays: words, perhaps with ``open-`` before them. They cannot lead out of the folder."""
NODE = f'{{"zarr_format": 3, "node_type": "group", "attributes": {{"{ATTRIBUTE}": '.encode()
HEAD = b'{"state": {"history": ['  # what stands in the file before the pointer, and in the pointer before the records
REMEDY = "Restore the store from a copy, or the run from a checkpoint."

Record = dict[str, Any]


class Records:
    """The records of a run as JSON. Each is encoded once, so that a commit takes hardly longer after many epochs.

    Only the last record may still change.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._done: tuple[int, Record | None] = 0, None
        self.text, self.digest = bytearray(HEAD), zlib.crc32(HEAD)
        """A pointer up to its last record, and the digest of that."""

    def add(self, records: Sequence[Record]) -> bytes:
        """Add all but the last record to the text; return the last one."""
        done, last = self._done
        if done and (done >= len(records) or records[done - 1] is not last):  # an earlier state was loaded
            self._clear()
        first, done = self._done[0], max(0, len(records) - 1)
        more = b"".join(json.dumps(record).encode() + b", " for record in records[first:done])
        self.text += more
        self.digest = zlib.crc32(more, self.digest)
        self._done = done, records[done - 1] if done else None
        return b"".join(json.dumps(record).encode() for record in records[done:])


def encode_pointer(
    generation: int, writer: str, arrays: dict[str, Any], state: dict[str, Any], records: Records
) -> tuple[dict[str, Any], bytes]:
    """Return a pointer without its state, and the bytes of its file; ``records`` has what was encoded before.

    Raises :class:`StoreError` if the file would be too long to be read again.
    """
    last = records.add(state.get("history", []))
    pointer = {"format": FORMAT, "generation": generation, "writer": writer, "arrays": arrays}
    rest = {name: value for name, value in state.items() if name != "history"}
    # The history is first, so that its digest goes on from that of the last commit. Written as one value: zarr's own
    # update reads, merges and writes it, with every record on lines of its own.
    told = f"]{', ' * bool(rest)}{json.dumps(rest)[1:]}, {json.dumps(pointer)[1:]}"
    tail = last + told.encode()
    length = len(records.text) + len(tail)
    if length > MOST - 200:
        raise StoreError(
            f"Expected a run whose description takes at most {MOST:,} bytes, as a record of each epoch is kept. Got "
            f"{length:,}: go on without a store, by state_dict()."
        )
    digest = f', "digest": {zlib.crc32(tail, records.digest)}}}}}}}'.encode()
    return pointer, b"".join((NODE, records.text, tail[:-1], digest))


def decode_pointer(raw: bytes, location: str) -> dict[str, Any]:
    """Return the pointer that a file has, with the history in its state.

    Raises :class:`ForeignStore` if the file is something else, or has another format; and :class:`DamagedStore` if it
    is no JSON, or does not match its digest.
    """
    try:
        node = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise DamagedStore(f"Expected JSON in {location}/zarr.json. Got {shown(error)}. {REMEDY}") from error
    attributes = node.get("attributes") if isinstance(node, dict) else None
    if not isinstance(attributes, dict) or ATTRIBUTE not in attributes:
        raise ForeignStore(
            f"Expected a run of prunedata at {location}. Got a zarr node of another kind: name another place."
        )
    pointer: dict[str, Any] = attributes[ATTRIBUTE]
    found = pointer.get("format") if isinstance(pointer, dict) else None
    if type(found) is not int or found != FORMAT:
        raise ForeignStore(
            f"Expected a store of format {FORMAT} at {location}. Got format {shown(found)}: another version of "
            "prunedata wrote it, or it is damaged. Begin a new run in another store."
        )
    digest = pointer.pop("digest", None)
    is_group = node.get("zarr_format") == 3 and node.get("node_type") == "group"
    if digest != _digest(pointer, location) or not is_group:
        raise DamagedStore(f"Expected {location}/zarr.json to match its digest. Got another: it is damaged. {REMEDY}")
    try:
        check("a pointer", pointer, POINTER)
    except PrunedataError as error:
        raise DamagedStore(f"Expected a pointer in {location}/zarr.json. {error}") from error
    return pointer


def _digest(pointer: dict[str, Any], location: str) -> int:
    try:
        return zlib.crc32(json.dumps(pointer).encode())
    except RecursionError as error:  # JSON can be nested too deeply to be written, though it could be read
        raise DamagedStore(
            f"Expected {location}/zarr.json to match its digest. Got values too deep for one."
        ) from error


def _shape(name: str, value: Any) -> None:
    check(name, value, [COUNT])
    if len(value) != 1:
        raise PrunedataError(f"Expected {name} to be of one dimension. Got {shown(value)}.")


def _arrays(name: str, value: Any) -> None:
    check(name, value, {"*": {"shape": _shape, "dtype": dtype_of("<"), "crc32": COUNT}})
    for array in value:
        if NAME.fullmatch(array) is None:
            raise PrunedataError(f"Expected {name} with names that are words. Got {shown(array)}.")


POINTER = {
    "format": COUNT, "generation": COUNT, "writer": TEXT, "arrays": _arrays,
    "state": {"history": [{"*": anything}], "*": anything},
}  # fmt: skip
"""The schema of a pointer. Its state is checked later, together with the arrays."""
