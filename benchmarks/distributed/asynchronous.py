"""Asynchronous training: workers and parameter servers in Ray actors, batches from the dealer, each at its own pace."""

import os
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np
import ray
import torch
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from benchmarks.common.data import digits
from benchmarks.common.networks import build
from benchmarks.distributed.servers import Servers
from prunedata import Pruner, Schedule
from prunedata.adapters.ray import RayDealer, serve

__all__ = ["AsyncRun", "AsyncWorker", "accuracy_of", "initial_weights", "train_async"]


@dataclass(frozen=True)
class AsyncRun:
    """What is trained, and on what: scikit-learn's digits, a share of whose labels is made wrong at random."""

    workers: int = 2
    servers: int = 1
    epochs: int = 6
    batch_size: int = 32
    prune: float = 0.0
    noise: float = 0.0
    network: str = "lenet"
    seed: int = 0


def _build(run: AsyncRun) -> torch.nn.Module:
    torch.manual_seed(run.seed)
    torch.set_num_threads(1)
    return build(run.network, 1, 10)


def initial_weights(run: AsyncRun) -> Any:
    """The weights that the run starts from, shape (n,), float32."""
    return parameters_to_vector(_build(run).parameters()).detach().numpy()


def accuracy_of(run: AsyncRun, weights: Any) -> float:
    """Share of the test images that weights tell right."""
    model, test = _build(run), digits().test
    vector_to_parameters(torch.from_numpy(np.array(weights)), model.parameters())
    images, labels = test.batch(torch.arange(len(test)))
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())


class AsyncWorker:
    """What runs in a worker's process."""

    def __init__(self, run: AsyncRun) -> None:
        self._model, self._train = _build(run), digits(run.noise).train

    def pid(self) -> int:
        """For who wants to kill it."""
        return os.getpid()

    def train(self, dealer: RayDealer, servers: Servers, name: int) -> int:
        """Train until the run is done; return how many batches were reported."""
        reported = 0
        for deal in dealer.deals(name, poll=0.01):
            pulled, versions = servers.pull()
            vector_to_parameters(torch.from_numpy(pulled), self._model.parameters())
            images, labels = self._train.batch(torch.from_numpy(np.array(deal.ids)))
            losses = F.cross_entropy(self._model(images), labels, reduction="none")
            mean = losses.mean() if deal.weights is None else (losses * torch.from_numpy(deal.weights.copy())).mean()
            gradients = torch.autograd.grad(mean, list(self._model.parameters()))
            newest = servers.push(parameters_to_vector(gradients).numpy(), versions)
            reported += bool(dealer.observe(deal, losses, version=versions[0], newest=newest[0]))
        return reported


def train_async(run: AsyncRun) -> dict[str, Any]:
    """Train, and return what came of it: accuracy, images a second, epochs, staleness at the servers."""
    samples = len(digits().train)
    schedule = Schedule.steady(run.epochs)
    servers = Servers(initial_weights(run), run.servers)
    dealer = serve(
        lambda: Pruner(samples, schedule, prune=run.prune, seed=run.seed, observe_only=not run.prune), run.batch_size
    )
    actor: Any = ray.remote(AsyncWorker).options(num_cpus=0)
    workers = [actor.remote(run) for _ in range(run.workers)]
    ray.get([worker.pid.remote() for worker in workers])
    started = perf_counter()
    reported = ray.get([worker.train.remote(dealer, servers, name) for name, worker in enumerate(workers)])
    seconds = perf_counter() - started
    visits = dealer.ask(lambda pruner: [record["observed"] for record in pruner.history])
    staleness = servers.staleness()
    return {
        **asdict(run),
        "visits": visits,
        "seconds": seconds,
        "images_per_second": sum(visits) / seconds,
        "batches": reported,
        "staleness": [sum(k * n for k, n in some.items()) / max(1, sum(some.values())) for some in staleness],
        "accuracy": accuracy_of(run, servers.pull()[0]),
    }
