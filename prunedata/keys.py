"""Keys identify the rows of a data set when their places change. A run keeps a hash of 64 bits of each key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np

from prunedata.checks import shown
from prunedata.errors import LossError, PrunedataError
from prunedata.types import Ids, Keys

DIGITS = 16  # hexadecimal digits of a hash in a file


def hash_keys(keys: Any) -> Keys:
    """Return a hash of each key, shape (samples,): the same on every machine, and in every version of Python.

    ``keys`` is a sequence or an array of str, bytes or int, one for each sample. A key is compared as text: ``7``,
    ``"7"`` and ``b"7"`` are the same key. Its hash is BLAKE2b of 64 bits of this text in UTF-8, which ``b2sum -l 64``
    prints in hexadecimal digits.

    Raises :class:`PrunedataError` if a key is of another type, or comes twice; or if two keys have the same hash.
    """
    if isinstance(keys, str | bytes) or not (hasattr(keys, "__array__") or hasattr(keys, "__iter__")):
        raise PrunedataError(f"Expected keys to be a sequence with one key for each sample. Got {shown(keys)}.")
    if isinstance(keys, Sequence):
        keys = keys[:]  # a column of a data set, which would be read row by row
    given = np.asarray(keys).tolist() if hasattr(keys, "__array__") else list(keys)
    if not isinstance(given, list):
        raise PrunedataError(f"Expected keys to be a sequence with one key for each sample. Got {shown(keys)}.")
    hashes = _hashes(_texts(given))
    ordered = np.sort(hashes)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if repeated.size:
        _refuse_repeats(list(_texts(given)), hashes, np.unique(repeated))
    return hashes


def _hashes(texts: Iterable[bytes]) -> Keys:
    digests = b"".join([one.digest() for one in map(partial(blake2b, digest_size=8), texts)])
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64)


class SampleIds:
    """Turns a stream's id of a sample, in a run with ``keys`` its key, into the id. Can be sent to workers."""

    def __init__(self, samples: int, keys: Keys | None = None) -> None:
        self._samples, self._keys = samples, keys
        self._order: Ids | None = None

    def of(self, given: Any) -> int:
        """Return the id of a sample. Raises :class:`LossError` if it has none."""
        is_text = isinstance(given, str | bytes)
        if not is_text:
            try:
                given = int(given.__index__())
            except (AttributeError, TypeError):
                raise LossError(f"Expected an int as the id of a sample. Got {shown(given)}.") from None
        if self._keys is not None:
            return self._place_of(given, self._keys, is_text=is_text)
        if is_text:
            raise LossError(
                f"Expected an int as the id of a sample. Got {shown(given)}: to use names, pass one key per sample, as "
                "in Pruner(keys=names, epochs=30)."
            )
        if not 0 <= given < self._samples:
            raise LossError(
                f"Expected ids from 0 to {self._samples - 1}. Got {given}: to use other numbers, pass those of all "
                "samples as keys, as in Pruner(keys=numbers, epochs=30)."
            )
        return int(given)

    def _place_of(self, key: str | bytes | int, keys: Keys, *, is_text: bool) -> int:
        if self._order is None:
            self._order = np.argsort(keys)
        value = _hashes([_text(0, key)])[0]
        at = int(np.searchsorted(keys, value, sorter=self._order))
        place = int(self._order[at]) if at < keys.size else -1
        if place < 0 or keys[place] != value:
            why = "" if is_text else ". In a run with keys the ids of a stream are its keys, not positions"
            raise LossError(f"Expected one of the run's {keys.size} keys as the id of a sample. Got {shown(key)}{why}.")
        return place


def own_keys(keys: Any, samples: int) -> Keys | None:
    """Return the hashes of the names that a source has for its samples; None unless each has a name of its own."""
    try:
        hashes = None if keys is None else hash_keys(keys)
    except PrunedataError:
        return None
    return hashes if hashes is None or hashes.size == samples else None


def _texts(keys: list[Any]) -> Iterator[bytes]:
    kinds = set(map(type, keys))
    if kinds == {str}:
        return (key.encode("utf-8", "surrogatepass") for key in keys)  # file names may hold bytes that are no text
    if kinds == {int}:
        return (b"%d" % key for key in keys)
    return (_text(at, key) for at, key in enumerate(keys))


def _text(at: int, key: object) -> bytes:
    if isinstance(key, str):
        return key.encode("utf-8", "surrogatepass")
    if isinstance(key, bytes):
        return key
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        return b"%d" % key
    raise PrunedataError(f"Expected each key to be text, bytes or a whole number. Got {shown(key)} for sample {at}.")


def _refuse_repeats(texts: list[bytes], hashes: Keys, repeated: Keys) -> None:
    first: dict[int, int] = {}
    twice: list[tuple[int, int]] = []
    colliding: list[tuple[int, int]] = []
    for at in np.flatnonzero(np.isin(hashes, repeated)).tolist():
        before = first.setdefault(int(hashes[at]), at)
        if before != at:
            (twice if texts[before] == texts[at] else colliding).append((before, at))
    pairs, got = (twice, "come twice") if twice else (colliding, "differ and have the same hash of 64 bits")
    some = "; ".join(f"{shown(_readable(texts[at]))} for samples {before} and {at}" for before, at in pairs[:3])
    cure = "let each row be in the data once" if twice else "change one of each two"
    raise PrunedataError(
        f"Expected a key of its own for each sample. Got {len(pairs)} that {got} ({some}"
        f"{'; ...' if len(pairs) > 3 else ''}): {cure}, or name the rows otherwise."
    )


def _readable(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")


def places_of(keys: Keys, among: Keys) -> Ids:
    """Return the place of each key in ``among``, shape as ``keys``; -1 for keys that are not in it."""
    if not among.size:
        return np.full(keys.size, -1, dtype=np.int64)
    # Both are sorted: to look up millions of keys in any order takes five times as long.
    order, turn = np.argsort(among, kind="stable"), np.argsort(keys)
    at = np.empty(keys.size, dtype=np.int64)
    at[turn] = np.searchsorted(among[order], keys[turn])
    places = order[np.minimum(at, among.size - 1)]
    return np.where(among[places] == keys, places, -1)


def key_text(key: int) -> str:
    """Write a hash as 16 hexadecimal digits."""
    return f"{key:0{DIGITS}x}"


def key_from(text: str) -> int | None:
    """Return the hash that :func:`key_text` wrote; None for any other text."""
    is_hash = len(text) == DIGITS and all(digit in "0123456789abcdef" for digit in text)
    return int(text, 16) if is_hash else None
