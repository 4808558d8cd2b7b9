"""A DataLoader over a pruned stream, with its ids taken off."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from prunedata import Pruner, Schedule
from prunedata.adapters import iterable
from prunedata.adapters.torch import wrap
from prunedata.errors import LossError, PrunedataError

SAMPLES = 61


class Shared(IterableDataset):
    """Raw samples that workers share, or of which, if they don't, each reads all."""

    def __init__(self, shared=True):
        self.shared = shared

    def __iter__(self):
        worker = get_worker_info()
        step, first = (worker.num_workers, worker.id) if worker and self.shared else (1, 0)
        yield from range(first, SAMPLES, step)


def itself(number):
    return number


def loader_of(pruner, *, shared=True, **settings):
    stream = iterable.wrap(Shared(shared), pruner, id=itself, then=float)
    return wrap(DataLoader(stream, batch_size=8, **settings), pruner)


def train(loader):
    for batch in loader:
        loader.observe(torch.sin(batch).float())


def new_pruner():
    return Pruner(SAMPLES, Schedule(6, 6, 1, 2, 1), prune=0.3)


def test_the_tails_that_drop_last_cuts_are_no_skipped_samples():
    pruner = new_pruner()
    loader = loader_of(pruner, num_workers=2, drop_last=True)
    for _ in pruner.epochs():
        train(loader)
    assert all(0 < record["kept"] - record["observed"] < 16 for record in pruner.history)


def test_workers_that_each_read_everything_are_noticed_at_the_first_sample_that_repeats():
    pruner = new_pruner()
    loader = loader_of(pruner, shared=False, num_workers=2)
    pruner.begin_epoch()
    batches = iter(loader)
    loader.observe(next(batches).float())
    with pytest.raises(LossError, match="sample 0 again"):
        next(batches)


def test_drop_last_that_drops_all_of_an_epoch_is_told_when_the_loader_is_wrapped():
    pruner = new_pruner()
    stream = iterable.wrap(Shared(), pruner, id=itself)
    with pytest.raises(PrunedataError, match=r"at least one batch of 50 .*Got 43 samples in epoch 1"):
        wrap(DataLoader(stream, batch_size=50, drop_last=True), pruner)
