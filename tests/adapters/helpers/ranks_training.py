"""A model that is trained by several real processes, as by one."""

import numpy as np
import torch
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from prunedata.adapters.torch import wrap
from prunedata.policies import DroppingCount, RunningLoss
from tests.adapters.helpers.torch import Items, make_pruner

__all__ = ["GLOBAL", "POLICIES", "Trained", "losses_of", "model_of", "ready", "sampler_of", "weights_of"]

GLOBAL = 12
"""Samples of all ranks together in a step: 103 and 73 kept ones leave 7 and 1 for the last."""
POLICIES = {"DroppingCount": DroppingCount, "RunningLoss": RunningLoss}


def features_of(index):
    index = torch.as_tensor(index)
    return torch.stack([index % 7 / 7, index % 11 / 11, index % 3 / 3], 1).double()


def model_of():
    torch.manual_seed(0)
    return torch.nn.Linear(3, 1, dtype=torch.float64)


def losses_of(model, index):
    target = torch.as_tensor(index) % 5 / 5
    return (model(features_of(index)).squeeze(1) - target) ** 2


def sampler_of(rank, world):
    return DistributedSampler(Items(), num_replicas=world, rank=rank)


def ready(model, world, sharded=False):
    if sharded:
        fully_shard(model)
        return model
    return DistributedDataParallel(model) if world > 1 else model


def weights_of(model):
    full = [value.full_tensor() if hasattr(value, "full_tensor") else value for value in model.parameters()]
    return [number for value in full for number in value.detach().ravel().tolist()]


class Trained:
    """A model, its loader and its pruner on one rank, and a log of what they did."""

    def __init__(self, rank, world, *, policy="DroppingCount", kind=DataLoader, sharded=False, **options):
        self.plain = model_of()
        self.model = ready(self.plain, world, sharded)
        self.pruner = make_pruner(policy=POLICIES[policy]())
        loader = kind(Items(), batch_size=GLOBAL // world, sampler=sampler_of(rank, world), **options)
        self.loader = wrap(loader, self.pruner)
        self.log, self.counts = {}, []

    def go(self, stop=None, after_step=None):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.2)
        steps = 0
        for epoch in self.pruner.epochs():
            if self.pruner.history and not self.counts[self.pruner.next_epoch - 1 :]:
                self.counts.append(self.pruner.counts.tolist())
            entry = {"kept": np.flatnonzero(epoch.keep).tolist(), "length": len(self.loader), "batches": []}
            self.log.setdefault(epoch.number, entry)
            for _, index in self.loader:
                optimizer.zero_grad()
                self.loader.observe(losses_of(self.model, index)).backward()
                optimizer.step()
                self.log[epoch.number]["batches"].append(index.tolist())
                steps += 1
                if after_step is not None:
                    after_step(self, steps)
                if steps == stop:
                    return self
        return self

    def found(self):
        return {
            "log": list(self.log.values()),
            "counts": [*self.counts, self.pruner.counts.tolist()],
            "visits": self.pruner.visits.tolist(),
            "observed": [record["observed"] for record in self.pruner.history],
            "mean_loss": [record["mean_loss"] for record in self.pruner.history],
            "arrays": {name: array.tolist() for name, array in self.pruner.arrays.items()},
            "lengths": self.loader.lengths(),
            "weights": weights_of(self.model),
        }
