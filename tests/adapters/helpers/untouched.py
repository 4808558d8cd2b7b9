"""A model with dropout and batch norm, and data in an order that is fixed: to compare training with us and without."""

import torch
from torch.utils.data import DataLoader, Sampler, TensorDataset

from prunedata import Pruner, Schedule

SAMPLES, EPOCHS, BATCH = 45, 3, 8


def data(samples=SAMPLES):
    ids = torch.arange(samples)
    features = torch.stack([torch.sin(ids * 1.0), torch.cos(ids * 3.0), torch.sin(ids * 0.1)], dim=1)
    return TensorDataset(features, ids % 3)


def layers():
    torch.manual_seed(3)
    parts = [torch.nn.Linear(3, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Dropout(0.3)]
    return torch.nn.Sequential(*parts, torch.nn.Linear(16, 3))


def watching(samples=SAMPLES):
    """A run that observes all and prunes nothing."""
    schedule = Schedule(EPOCHS, window=EPOCHS, start=1, block=1, pruned_per_block=1)
    return Pruner(samples, schedule, prune=0.3, leave_out="nothing")


class Own(Sampler):
    """An order of the user's own: another in each epoch, and the same in each run."""

    def __init__(self, samples=SAMPLES):
        self.samples, self.epoch = samples, 0

    def __len__(self):
        return self.samples

    def __iter__(self):
        self.epoch += 1
        yield from torch.randperm(self.samples, generator=torch.Generator().manual_seed(self.epoch)).tolist()


def loader(kind=DataLoader, samples=SAMPLES, **options):
    return kind(data(samples), **{"batch_size": BATCH, **options})


def assert_same(ours, theirs):
    """Two models are the same to the last bit, what batch norm has gathered included."""
    ours, theirs = ours.state_dict(), theirs.state_dict()
    assert [name for name in theirs if not torch.equal(ours[name], theirs[name])] == []
