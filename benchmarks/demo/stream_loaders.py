"""Pruned loaders over a stream of images, by WebDataset or over an iterable."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import webdataset as wds
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from benchmarks.common.data import ImageSet
from benchmarks.common.shards import Records, Shards
from benchmarks.demo.training import Setting
from prunedata import Pruner
from prunedata.adapters import iterable, webdataset
from prunedata.adapters.torch import wrap

__all__ = ["BUFFER", "LOADERS"]

BUFFER = 10_000
"""Samples that a stream's shuffle holds: all of a small data set."""


def from_tars(setting: Setting, shards: Shards) -> Callable[[Pruner], Any]:
    """Return what makes the pruned loader of a run, over a WebDataset."""
    index = webdataset.ShardIndex.scan(shards.tars)
    decode = Decode(setting.data.train)

    def load(pruner: Pruner) -> Any:
        dataset = wds.WebDataset(shards.tars, shardshuffle=100, detshuffle=True, seed=setting.seed)
        pruned = webdataset.wrap(dataset, pruner, index).shuffle(BUFFER, initial=BUFFER, seed=setting.seed)
        return wrap(DataLoader(pruned.to_tuple("png", "cls").map_tuple(decode, int), setting.batch_size), pruner)

    return load


def from_tables(setting: Setting, shards: Shards) -> Callable[[Pruner], Any]:
    """Return what makes the pruned loader of a run, over the rows of parquet files."""
    decode = Decode(setting.data.train)

    def sample(record: dict[str, Any]) -> tuple[Tensor, int]:
        return decode(record["image"]), record["label"]

    def load(pruner: Pruner) -> Any:
        rows = Shuffled(shards.tables, setting.seed)
        stream: Any = iterable.wrap(rows, pruner, id="uid", then=sample)
        return wrap(DataLoader(stream, setting.batch_size), pruner)

    return load


LOADERS = {"webdataset": from_tars, "iterable": from_tables}


class Decode:
    """PNG bytes to the float image that `images` would give."""

    def __init__(self, images: ImageSet) -> None:
        self.mean, self.std = images.mean, images.std

    def __call__(self, encoded: bytes) -> Tensor:
        with Image.open(io.BytesIO(encoded)) as picture:
            pixels = np.asarray(picture, dtype=np.float32)
        image = torch.from_numpy(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1).copy())
        return (image - self.mean) / self.std


class Shuffled(Records):
    """Rows through a buffer from which they are drawn at random, in another order in each pass."""

    def __init__(self, tables: list[str], seed: int) -> None:
        super().__init__(tables)
        self.rng = np.random.default_rng(seed)

    def __iter__(self) -> Any:
        held: list[dict[str, Any]] = []
        for row in super().__iter__():
            held.append(row)
            if len(held) >= BUFFER:
                place = int(self.rng.integers(len(held)))
                held[place], held[-1] = held[-1], held[place]
                yield held.pop()
        yield from (held[place] for place in self.rng.permutation(len(held)))
