"""The pointer of a run's store: one JSON file that says which arrays are in force, under a digest of itself."""

import json
import zlib
from typing import Any

from prunedata.checks import LARGEST, shown
from prunedata.errors import DamagedStore, ForeignStore, StoreError

__all__ = ["MOST", "decode_pointer", "encode_pointer"]

FORMAT = 1
ATTRIBUTE = "prunedata"
MOST = 1 << 26
"""Bytes of a pointer, of which a stranger's may make 25 times as many in memory. They hold some 300,000 epochs."""


def encode_pointer(
    generation: int, writer: str, arrays: dict[str, Any], state: dict[str, Any]
) -> tuple[dict[str, Any], bytes]:
    """Return a pointer and its file, which is the document of a zarr group.

    Parameters
    ----------
    generation : int
        Number of the commit.
    writer : str
        Who made it.
    arrays : dict
        Shape, dtype and digest of each array.
    state : dict
        The description of the run.

    Raises
    ------
    StoreError
        If it would be too long to be read again.
    """
    pointer = {"format": FORMAT, "generation": generation, "writer": writer, "arrays": arrays, "state": state}
    body = json.dumps(pointer)
    pointer["digest"] = zlib.crc32(body.encode())
    if len(body) > MOST - 200:
        raise StoreError(
            f"Expected a run whose description takes at most {MOST:,} bytes, as a record of each epoch is kept. Got "
            f"{len(body):,}: go on without a store, by state_dict()."
        )
    signed = f'{body[:-1]}, "digest": {pointer["digest"]}}}'  # a long history takes a while to encode twice
    # Written as one value: zarr's own update reads, merges and writes it.
    return pointer, f'{{"zarr_format": 3, "node_type": "group", "attributes": {{"{ATTRIBUTE}": {signed}}}}}'.encode()


def decode_pointer(raw: bytes, location: str) -> dict[str, Any]:
    """Return the pointer of a file.

    Raises
    ------
    ForeignStore
        If it is of something else, or of another format.
    DamagedStore
        If it is no JSON, or does not match its digest.
    """
    try:
        node = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise DamagedStore(f"Expected JSON in {location}/zarr.json. Got {error}.") from error
    attributes = node.get("attributes") if isinstance(node, dict) else None
    if not isinstance(attributes, dict) or ATTRIBUTE not in attributes:
        raise ForeignStore(
            f"Expected a run of prunedata at {location}. Got a zarr node of another kind: name another place."
        )
    pointer = attributes[ATTRIBUTE]
    if not isinstance(pointer, dict) or pointer.get("format") != FORMAT:
        found = pointer.get("format") if isinstance(pointer, dict) else pointer
        raise ForeignStore(
            f"Expected a store of format {FORMAT} at {location}. Got format {shown(found)}: "
            "it was written by another version of prunedata, or it is damaged."
        )
    is_group = node.get("zarr_format") == 3 and node.get("node_type") == "group"
    if pointer.get("digest") != _digest(pointer, location) or not is_group:
        raise DamagedStore(f"Expected {location}/zarr.json to match its digest. Got another: it is damaged.")
    generation, wanted = pointer.get("generation"), {"format", "generation", "writer", "arrays", "state", "digest"}
    if pointer.keys() != wanted or type(generation) is not int or not 0 <= generation <= LARGEST:
        raise DamagedStore(f"Expected a pointer with {', '.join(sorted(wanted))} in {location}/zarr.json. Got another.")
    return pointer


def _digest(pointer: dict[str, Any], location: str) -> int:
    body = {key: value for key, value in pointer.items() if key != "digest"}
    try:
        return zlib.crc32(json.dumps(body).encode())
    except RecursionError as error:  # it could be read, but is too deep to be written
        raise DamagedStore(
            f"Expected {location}/zarr.json to match its digest. Got values too deep for one."
        ) from error
