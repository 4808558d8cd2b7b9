"""Data, losses and training for tests of the adapter for PyTorch, and streams that are wrong in a way."""

import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap

# A dataset whose batches say which samples they are, and a training loop that checks every batch by it.


SAMPLES = 103
BATCH = 8
EVERY_OTHER = Schedule(5, window=5, start=1, block=2, pruned_per_block=1)


class Items(Dataset):
    """Item i is (features, first + i). With ``slow``, one worker lags behind the other."""

    def __init__(self, samples: int = SAMPLES, *, first: int = 0, slow: bool = False) -> None:
        self.samples, self.first, self.slow, self.scale = samples, first, slow, 1.0
        self.classes = ["cat", "dog"]

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        assert type(index) is int, f"as strict as Hugging Face datasets: got {type(index)}"
        worker = get_worker_info()
        if self.slow and worker is not None and worker.id == 0:
            time.sleep(0.002)
        return torch.tensor([index % 7, index % 11, 1.0]) * self.scale, self.first + index


def loader_of(dataset: Any = None, kind: Any = DataLoader, **options: Any) -> Any:
    return kind(Items() if dataset is None else dataset, batch_size=BATCH, **{"shuffle": True, **options})


def make_pruner(samples: int = SAMPLES, schedule: Schedule = EVERY_OTHER, **options: Any) -> Pruner:
    return Pruner(samples, schedule, **{"prune": 0.3, "seed": 5, **options})


def pruned(dataset: Any = None, *, with_ids: bool = False, ahead: int = 0, **options: Any) -> tuple[Pruner, Any]:
    """A pruner, and a loader that it prunes."""
    pruner = make_pruner()
    return pruner, wrap(loader_of(dataset, **options), pruner, with_ids=with_ids, ahead=ahead)


def losses_of(ids: Any, epoch: int) -> torch.Tensor:
    """A loss of its own for each sample and epoch."""
    return ((torch.as_tensor(ids).long() * 7919 + epoch * 104729) % 101).float() / 101


def pass_over(loader: Any, epoch: int, stop: int | None = None) -> int:
    """Observe each batch of a pass over a loader, or the first ones; return how many."""
    batches = 0
    for _, index in islice(loader, stop):
        loader.observe(losses_of(index, epoch))
        batches += 1
    return batches


def second(batch: Any) -> Any:
    return batch[1]


def train(
    loader: Any, pruner: Pruner, read: Callable[[Any], Any] = second, *, batches: Callable[[Any], Any] = iter
) -> list[list[list[int]]]:
    """Train to the end of the run and return the ids of each batch of each epoch, as the batches tell them.

    A second pruner is fed the very ids that the batches tell. It agrees on every mask and on every count only if
    each batch's losses were recorded for its own samples.
    """
    options = {"policy": pruner.policy, "batch_size": pruner.batch_size, "seed": pruner.seed}
    told = make_pruner(pruner.samples, pruner.schedule, prune=pruner.prune, **options)
    epochs = []
    for epoch in pruner.epochs():
        assert np.array_equal(told.begin_epoch().keep, epoch.keep)
        epochs.append([])
        for batch in batches(loader):
            ids = np.atleast_1d(np.asarray(read(batch)))
            losses = losses_of(ids, epoch.number)
            loader.observe(losses)
            told.observe(losses.numpy(), ids)
            epochs[-1].append(ids.tolist())
        told.skip(epoch.kept)
        told.end_epoch()
    assert np.array_equal(pruner.counts, told.counts)
    assert np.array_equal(pruner.visits, told.visits)
    return epochs


def by_the_core(pruner: Pruner) -> tuple[list[list[int]], list[list[list[int]]]]:
    """Each epoch's kept ids, and its batches in the core's own order, of a run on ``losses_of`` without a loader."""
    kept, batches = [], []
    for epoch in pruner.epochs():
        kept.append(np.flatnonzero(epoch.keep).tolist())
        batches.append([batch.tolist() for batch in epoch.batches(BATCH)])
        for batch in batches[-1]:
            pruner.observe(losses_of(batch, epoch.number).numpy(), np.array(batch))
    return kept, batches


def flat(batches: list[list[int]]) -> list[int]:
    return [each for batch in batches for each in batch]


# Raw samples as PyTorch's IterableDatasets: one as it should be, and two that fall into traps.


class Records(IterableDataset):
    """Records of which each worker gives a share."""

    def __init__(self, records, then=None):
        self.records, self.then = records, then

    def map(self, then):
        return Records(self.records, then)

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        own = self.records[first::step]
        yield from own if self.then is None else map(self.then, own)


class StaleMask(IterableDataset):
    """The trap: the mask lies on the dataset, of which persistent workers hold a copy."""

    def __init__(self, samples):
        self.samples, self.keep = samples, None

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        yield from ((number, number) for number in range(first, self.samples, step) if self.keep[number])


class Positions(IterableDataset):
    """The trap: the id is a position, and every worker counts from zero. The raw samples are as they should be."""

    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        yield from (
            {"uid": place, "text": str(number)} for place, number in enumerate(range(first, self.samples, step))
        )
