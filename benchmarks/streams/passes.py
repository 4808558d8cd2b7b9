"""One pass over shards: plain, pruned before decoding, filtered after decoding; and a race of them.

Each way is a function that makes an iterable of batches. Nothing here has workers: a pass stays in the process.
"""

import gc
import io
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
import webdataset as wds
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.common.shards import Records, Shards
from prunedata import Pruner
from prunedata.adapters import iterable, webdataset

__all__ = ["BATCH", "Batches", "Entrant", "Passes", "one_core", "over_parquet", "over_tars", "race"]

BATCH = 128
Batches = Callable[[], Iterable[Any]]


@dataclass(frozen=True)
class Passes:
    """The same pass in three ways.

    Attributes
    ----------
    plain : callable
        Makes the batches of all samples, without prunedata.
    pruned : callable
        Makes the batches of what the open epoch of a Pruner keeps.
    after_decode : callable
        Makes the same batches by a filter of the framework's own that stands behind decoding.
    numbered : callable or None
        Makes the batches of all samples with their ids, without prunedata: what it costs that ids travel along.
    reads_ahead : bool
        Whether a pass works on in threads of its own between its batches.
    """

    plain: Batches
    pruned: Callable[[Pruner], Batches]
    after_decode: Callable[[NDArray[np.bool_]], Batches]
    numbered: Batches | None = None
    reads_ahead: bool = False


def over_tars(shards: Shards) -> Passes:
    """WebDataset: shuffle, decode and to_tuple as its documentation has them, in a DataLoader."""
    index = webdataset.ShardIndex.scan(shards.tars)
    ids = {url: index.ids_of(url) for url in index.urls}

    def raw() -> Any:
        return wds.WebDataset(shards.tars, shardshuffle=100, detshuffle=True, seed=1)

    def load(samples: Any) -> Iterable[Any]:
        return DataLoader(samples.to_tuple("jpg", "cls"), BATCH)

    def pruned(pruner: Pruner) -> Batches:
        return lambda: load(webdataset.wrap(raw(), pruner, index).shuffle(1000, seed=1).decode("torchrgb"))

    def after(keep: NDArray[np.bool_]) -> Batches:
        def kept(sample: dict[str, Any]) -> bool:
            return bool(keep[ids[sample["__url__"]][sample["__key__"]]])

        return lambda: load(raw().shuffle(1000, seed=1).decode("torchrgb").select(kept))

    return Passes(lambda: load(raw().shuffle(1000, seed=1).decode("torchrgb")), pruned, after)


class Mapped(IterableDataset[Any]):
    """What a generator function makes of records."""

    def __init__(self, records: Records, make: Callable[[Records], Iterator[Any]]) -> None:
        self.records, self.make = records, make

    def __iter__(self) -> Iterator[Any]:
        return self.make(self.records)


def decode(record: dict[str, Any]) -> tuple[torch.Tensor, int]:
    """Decode a record as WebDataset's ``torchrgb`` does: floats from 0 to 1, shape (3, height, width)."""
    with Image.open(io.BytesIO(record["image"])) as picture:
        pixels = np.asarray(picture.convert("RGB"), dtype=np.float32) / 255
    return torch.from_numpy(pixels.transpose(2, 0, 1)), record["label"]


def over_parquet(shards: Shards) -> Passes:
    """Any iterable: rows of parquet files, decoded by Pillow, in a DataLoader."""
    records = Records(shards.tables)

    def load(make: Callable[[Records], Iterator[Any]]) -> Batches:
        return lambda: DataLoader(Mapped(records, make), BATCH)

    def pruned(pruner: Pruner) -> Batches:
        stream = iterable.wrap(records, pruner, id="uid", then=decode)
        return lambda: DataLoader(stream, BATCH)  # type: ignore[arg-type]  # an IterableDataset, as torch is imported

    def after(keep: NDArray[np.bool_]) -> Batches:
        def filtered(rows: Records) -> Iterator[Any]:
            decoded = ((row["uid"], decode(row)) for row in rows)
            return (sample for uid, sample in decoded if keep[uid])

        return load(filtered)

    return Passes(load(lambda rows: map(decode, rows)), pruned, after)


TURNS = 40


@dataclass(frozen=True)
class Entrant:
    """A pass: what makes its batches, and how many those are."""

    make: Callable[[], Iterable[Any]]
    batches: int


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this thread, and those that it begins, on one core. Only Linux lets a program choose."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def race(
    entrants: Mapping[str, Entrant], repeats: int, tick: Callable[[], object], turns: int = TURNS
) -> dict[str, list[float]]:
    """Return the processor's seconds of each pass, one for each repeat, after one repeat to warm up.

    Each pass is run in so many turns, one after the other, so that a busy moment of the machine hits them alike. The
    processor's time is that of the whole process: a pass that works on in threads of its own would do so in another's
    time, so such passes are run whole.

    Raises
    ------
    RuntimeError
        If a pass gives another number of batches than it said.
    """
    seconds: dict[str, list[float]] = {name: [] for name in entrants}
    was_enabled = gc.isenabled()
    gc.disable()  # a collection goes through what all passes hold, and is charged to one
    try:
        for repeat in range(repeats + 1):
            gc.collect()
            for name, took in _once(entrants, turns, repeat).items():
                if repeat:
                    seconds[name].append(took)
            tick()
    finally:
        if was_enabled:
            gc.enable()
    return seconds


def _once(entrants: Mapping[str, Entrant], turns: int, repeat: int) -> dict[str, float]:
    """Run each pass once. After turn t of T each has gone t/T of its way, and each goes first in turn."""
    names, seconds, under_way = list(entrants), dict.fromkeys(entrants, 0.0), dict[str, Iterator[Any]]()
    for turn in range(turns):
        first = (repeat + turn) % len(names)
        for name in names[first:] + names[:first]:
            begun, total = time.process_time(), entrants[name].batches
            if turn == 0:
                under_way[name] = iter(entrants[name].make())
            steps = total * (turn + 1) // turns - total * turn // turns
            got = sum(1 for _ in islice(under_way[name], steps))
            over = turn == turns - 1 and next(under_way[name], None) is not None
            seconds[name] += time.process_time() - begun
            if got < steps or over:
                raise RuntimeError(f"Expected {total} batches of the pass {name}. Got {'more' if over else 'fewer'}.")
    return seconds
