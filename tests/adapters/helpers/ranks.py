"""Several real processes that train together over gloo."""

import json
import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from prunedata.adapters.torch import wrap
from prunedata.errors import PrunedataError
from prunedata.policies import DroppingCount, RunningLoss
from tests.adapters.helpers.torch import Items, make_pruner

__all__ = [
    "GLOBAL",
    "POLICIES",
    "WORLD",
    "Trained",
    "clean_processes",
    "everyones",
    "group",
    "launched",
    "losses_of",
    "meet",
    "model_of",
    "ready",
    "sampler_of",
    "start",
    "told",
    "weights_of",
]

WORLD = 2
SHARED = ("torch.distributed.fsdp", "prunedata.adapters.torch", "torchdata.stateful_dataloader", "webdataset")
SHARED += ("accelerate", "lightning", "transformers.trainer", "trl.trainer.sft_trainer")
"""Imported once for all ranks, where the tests have imported them, too: each rank takes seconds for them.

``import transformers`` alone imports next to nothing: whoever takes the trainer from it pays for it.
"""


@contextmanager
def group(rank: int, folder: Path, backend: str = "gloo", *, world: int = WORLD, timeout: float = 60) -> Iterator[None]:
    """Be a rank of the group that meets in `folder`, and end when all have come to the end."""
    torch.set_num_threads(1)
    # The workers of a rank's loaders are forked from a process of its own, which has imported nothing: each would anew.
    multiprocessing.get_context("forkserver").set_forkserver_preload(["prunedata.adapters.torch"])
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # the machine's name may not be known to itself
    if backend == "nccl":
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        backend,
        init_method=f"file://{folder}/meeting-{world}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=timeout),  # so that a rank that waits for ever is an error
    )
    yield
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def meet(folder: Path) -> None:
    """Choose a port at which processes meet that are no `group`, but become one by what is `launched`.

    Below those that the system chooses: it could give one of these to another program before the ranks meet there.
    """
    for port in range(20000 + os.getpid() % 10000, 32000):
        with closing(socket.socket()) as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            (folder / "port").write_text(str(port))
            return


def launched(rank: int, folder: Path | None = None, world: int = WORLD) -> None:
    """Set what a launcher sets; without the folder in which they `meet`, the port is asked for and not used."""
    port = "1" if folder is None else (folder / "port").read_text()
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {"LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # the machine's name may not be known to itself
    torch.set_num_threads(1)


def clean_processes() -> Any:
    """What starts processes that have nothing of this one, but what they would have to import."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in SHARED if name in sys.modules])
    return context


def returned(work: Callable[[int, Path], Any], rank: int, folder: Path) -> None:
    """Write what `work` returns where `start` reads it."""
    (folder / f"{rank}.json").write_text(json.dumps(work(rank, folder)))


def start(work: Callable[[int, Path], Any], folder: Path, world: int = WORLD) -> list[Any]:
    """Run ``work(rank, folder)`` in a process for each rank; return what each returned, as JSON has it."""
    for left in folder.glob("meeting-*"):  # PyTorch leaves it where its last user is not collected: with old addresses
        left.unlink()
    context = clean_processes()
    processes = [context.Process(target=returned, args=(work, rank, folder)) for rank in range(world)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(200)
        process.kill()
    assert [process.exitcode for process in processes] == [0] * world
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]


def everyones(value: Any) -> list[Any]:
    """What each rank has, by rank."""
    values = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return values


def told(work: Callable[[], Any]) -> Any:
    """What ``work`` returns, or is told by an error."""
    try:
        return work()
    except PrunedataError as error:
        return f"{type(error).__name__}: {error}"


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
