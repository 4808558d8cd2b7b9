"""The pointer of a run's store: one JSON file that says which arrays are in force, under a digest of itself."""

import json
import zlib
from typing import Any

from prunedata.checks import LARGEST, shown
from prunedata.errors import DamagedStore, ForeignStore, StoreError
from prunedata.store.documents import group_document, is_group

__all__ = ["HISTORY_CHUNK", "MOST", "decode_pointer", "encode_pointer"]

FORMAT = 3
PARTS = {"format", "generation", "writer", "arrays", "state", "history", "digest"}
"""What a pointer has."""
TOO_OLD = (1, 2)
"""Formats that only versions before the first release wrote."""
ATTRIBUTE = "prunedata"
MOST = 1 << 26
"""Bytes of a pointer and a history, of which a stranger's may make 25 times as many in memory: some 300,000 epochs."""
HISTORY_CHUNK = 1 << 14
"""Bytes of each file of a history: 50 to 100 records."""


def encode_pointer(
    generation: int,
    writer: str,
    arrays: dict[str, Any],
    state: dict[str, Any],
    history: dict[str, Any] | None = None,
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
    history : dict, optional
        What there is of its history in files of its own: ``slot``, ``chunks``, ``crc32``, and what is ``changing``;
        None if there is nothing.

    Raises
    ------
    StoreError
        If it would be too long to be read again.
    """
    pointer = {
        "format": FORMAT, "generation": generation, "writer": writer, "arrays": arrays, "state": state,
        "history": history,
    }  # fmt: skip
    body = json.dumps(pointer)
    pointer["digest"] = zlib.crc32(body.encode())
    length = len(body) + (0 if history is None else history["chunks"] * HISTORY_CHUNK)
    if length > MOST - 200:
        raise StoreError(
            f"Expected a run whose description takes at most {MOST:,} bytes, as a record of each epoch is kept. Got "
            f"{length:,}: go on without a store, by state_dict()."
        )
    signed = f'{body[:-1]}, "digest": {pointer["digest"]}}}'
    return pointer, group_document(ATTRIBUTE, signed)


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
    pointer: dict[str, Any] = attributes[ATTRIBUTE]
    found = pointer.get("format") if isinstance(pointer, dict) else pointer
    if type(found) is int and found in TOO_OLD:
        raise ForeignStore(
            f"Expected a store of format {FORMAT} at {location}. Got format {found}, which is too old: a development "
            "version of prunedata wrote it. Begin anew: name another store, or delete this one."
        )
    if not isinstance(pointer, dict) or type(found) is not int or found != FORMAT:
        raise ForeignStore(
            f"Expected a store of format {FORMAT} at {location}. Got format {shown(found)}: "
            "it was written by another version of prunedata, or it is damaged."
        )
    if pointer.get("digest") != _digest(pointer, location) or not is_group(node):
        raise DamagedStore(f"Expected {location}/zarr.json to match its digest. Got another: it is damaged.")
    generation = pointer.get("generation")
    if pointer.keys() != PARTS or type(generation) is not int or not 0 <= generation <= LARGEST:
        raise DamagedStore(f"Expected a pointer with {', '.join(sorted(PARTS))} in {location}/zarr.json. Got another.")
    if pointer["history"] is not None and not _is_history(pointer["history"], pointer["state"]):
        raise DamagedStore(
            f"Expected number and digest of the files of past epochs in {location}/zarr.json. "
            f"Got {shown(pointer['history'])}."
        )
    return pointer


def _is_history(about: object, state: object) -> bool:
    """Whether a pointer says of a history what can be, and has the last records itself."""
    if not isinstance(about, dict) or about.keys() != {"slot", "chunks", "crc32", "changing"}:
        return False
    slot, chunks, changing = about["slot"], about["chunks"], about["changing"]
    return (
        all(type(about[name]) is int for name in ("slot", "chunks", "crc32"))
        and slot in (0, 1)
        and 1 <= chunks <= MOST // HISTORY_CHUNK
        and (changing is None or (isinstance(changing, list) and [type(each) for each in changing] == [int, str]))
        and isinstance(state, dict)
        and isinstance(state.get("history"), list)
    )


def _digest(pointer: dict[str, Any], location: str) -> int:
    body = {key: value for key, value in pointer.items() if key != "digest"}
    try:
        return zlib.crc32(json.dumps(body).encode())
    except RecursionError as error:  # it could be read, but is too deep to be written
        raise DamagedStore(
            f"Expected {location}/zarr.json to match its digest. Got values too deep for one."
        ) from error
