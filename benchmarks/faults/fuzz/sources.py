"""The user's side of a training: datasets, samplers that can be told which pass it is, loaders, losses."""

import random
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from benchmarks.faults.fuzz.setup import OWN, STREAMS, Loaded, Setup

__all__ = ["LARGE", "Items", "Raw", "given", "loader_of", "losses_of", "order_of", "turn"]


LARGE = 16000.0
"""The largest loss: four times as much is a float16, and the sum of ten is not."""


class Items(Dataset[Any]):
    """Samples that are their own places."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: Any) -> torch.Tensor:
        return torch.as_tensor(index)


class Raw:
    """Raw samples of a stream: those of a rank, if each has a share of its own. It has no places."""

    def __init__(self, samples: int, rank: int = 0, ranks: int = 1) -> None:
        self.mine = range(rank, samples, ranks)

    def __iter__(self) -> Iterator[int]:
        return iter(self.mine)


class Own(Sampler[int]):
    """A sampler of the user's own."""

    number = 0

    def __init__(self, ids: list[int], kind: str, length: int) -> None:
        self.ids, self.kind, self.length = ids, kind, length

    def __iter__(self) -> Iterator[int]:
        chance = random.Random(f"own {self.number}")
        if self.kind == "few":  # as timm's RepeatAugSampler: each three times, cut to as many as there are samples
            order = [each for each in chance.sample(self.ids, len(self.ids)) for _ in range(3)]
            return iter(order[: len(self.ids)])
        if self.kind == "repeating":
            return iter(chance.choices(self.ids, k=self.length))
        return iter(chance.sample(self.ids, len(self.ids)))

    def __len__(self) -> int:
        return self.length if self.kind == "repeating" else len(self.ids)


class OwnBatches(Sampler[list[int]]):
    """A batch sampler of the user's own, with batches of many sizes."""

    number = 0

    def __init__(self, ids: list[int], batch: int) -> None:
        self.ids, self.batch = ids, batch

    def __iter__(self) -> Iterator[list[int]]:
        chance = random.Random(f"batches {self.number}")
        order = iter(chance.sample(self.ids, len(self.ids)))
        while batch := list(islice(order, chance.randint(1, self.batch))):
            yield batch

    def __len__(self) -> int:
        return sum(1 for _ in self)


def turn(source: Any, number: int) -> None:
    """Say which pass comes, as ``set_epoch`` would."""
    inner = getattr(source, "sampler", source)
    if getattr(inner, "generator", None) is not None:
        inner.generator.manual_seed(number)
    inner.number = source.number = number


def order_of(loader: Loaded, samples: int, rank: int, ranks: int) -> Any:
    """The sampler, or batch sampler, of a loader whose order is the user's own; those of ranks share the samples."""
    ids = list(range(samples))
    if loader.half is not None:
        ids = ids[: samples // 2] if loader.half == 0 else ids[samples // 2 :]
    share = ids[rank::ranks]
    generator = torch.Generator()
    if loader.order == "subset":
        return SubsetRandomSampler(share, generator=generator)
    if loader.order == "weighted":
        weights = [1.0 + each % 5 for each in ids]
        return WeightedRandomSampler(weights, -(-loader.length // ranks), generator=generator)
    if loader.order == "replacement":
        drawn = -(-loader.length // ranks)
        return RandomSampler(Items(samples), replacement=True, num_samples=drawn, generator=generator)
    if loader.order == "batches":
        return OwnBatches(share, loader.batch)
    own = Own(share, loader.order, -(-loader.length // ranks))
    if loader.order in ("batches in place", "batched own"):
        return BatchSampler(own, loader.batch, loader.drop_last)
    return own


def given(loader: Loaded, samples: int, number: int, rank: int, ranks: int) -> list[Any]:
    """What that sampler gives in a pass."""
    source = order_of(loader, samples, rank, ranks)
    turn(source, number + 1000 * rank)
    return list(source.sampler if loader.order == "batched own" else source)


def loader_of(loader: Loaded, setup: Setup, pruner: Any, rank: int, ranks: int) -> tuple[DataLoader[Any], Any]:
    """The user's DataLoader, and its sampler if that is to be turned."""
    kind: Any = DataLoader
    if loader.stateful:
        kind = import_module("torchdata.stateful_dataloader").StatefulDataLoader
    if loader.order in STREAMS:
        return _stream(loader, setup, pruner, rank, ranks), None
    data, options = Items(setup.samples), {"batch_size": loader.batch, "drop_last": loader.drop_last}
    options["num_workers"] = loader.workers
    if loader.order in OWN:
        if not loader.order.startswith("distributed"):
            return kind(data, shuffle=loader.order == "random", **options), None
        sampler: Any = DistributedSampler(
            data, ranks, rank, shuffle=loader.order == "distributed", drop_last=loader.sampler_drops
        )
        return kind(data, sampler=sampler, **options), None
    source = order_of(loader, setup.samples, rank, ranks)
    if loader.order in ("batches", "batched own"):
        return kind(data, batch_sampler=source, num_workers=loader.workers), source
    if loader.order == "batches in place":
        return kind(data, sampler=source, batch_size=None, num_workers=loader.workers), source
    return kind(data, sampler=source, **options), source


def _stream(loader: Loaded, setup: Setup, pruner: Any, rank: int, ranks: int) -> DataLoader[Any]:
    from prunedata.adapters import iterable  # noqa: PLC0415 (this module is the plain loop's, too)

    raw: Iterable[int] = list(range(setup.samples))
    if loader.order != "list stream":
        raw = Raw(setup.samples, rank, ranks) if loader.order == "shared stream" else Raw(setup.samples)
    stream: Any = iterable.wrap(raw, pruner, id=int, deal=loader.order == "dealt stream")
    return DataLoader(stream, batch_size=loader.batch, drop_last=loader.drop_last)


def losses_of(setup: Setup, ids: list[int], epoch: int, step: int) -> torch.Tensor:
    """The losses of a batch, which also depend on when it comes: a sample's loss is another one next time."""
    raw = np.sin(np.array(ids) * 12.9898 + epoch * 37.719 + step * 78.233 + setup.seed) * 43758.5453
    values = raw - np.floor(raw)
    if setup.losses == "signed":
        values = values - 0.5
    elif setup.losses == "large":
        values = values * LARGE
    elif setup.losses == "ties":
        values = np.round(values * 3) / 4 + 0.1
    elif setup.losses == "constant":
        values = np.full(len(ids), 0.1)
    return torch.tensor(values, dtype=getattr(torch, setup.dtype), requires_grad=True)
