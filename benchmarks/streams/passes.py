"""One pass over shards: plain, pruned before decoding, filtered after decoding.

Each way is a function that makes an iterable of batches. Nothing here has workers: a pass stays in the process.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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

__all__ = ["BATCH", "Batches", "Passes", "over_parquet", "over_tars"]

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
