"""Training with stale gradients in one process: workers that take turns, each with weights of its own age.

With k + 1 workers in turn, a worker pulls the weights, k others update them, and then it brings its gradient: it is k
versions old, and so are the losses. The first updates of an epoch are less stale, as all workers wait for the end of
the one before. Nothing depends on time, so a run gives the same in every repeat.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from benchmarks.common.data import SIZE, Data, ImageSet, digits, folder
from benchmarks.common.networks import build
from benchmarks.common.records import Facts
from benchmarks.distributed.staleness import ARMS, StaleRun
from benchmarks.study.choosers import auc
from prunedata import Deal, Dealer, Pruner
from prunedata.policies import RunningLoss
from prunedata.types import Mask

__all__ = ["StaleTask", "task_of", "train_stale"]

WEIGHT_DECAY = 5e-4
LAST = 3
"""The accuracy is the mean after so many last epochs."""


@dataclass(frozen=True, eq=False)
class StaleTask:
    """Images to train on, which of their labels are wrong, shape (samples,), and images to test with."""

    train: ImageSet
    wrong: Mask
    test: ImageSet
    channels: int
    classes: int


def task_of(run: StaleRun, images: Path | None = None) -> StaleTask:
    """The data of a run; ``images`` is the folder of CIFAR-10."""

    def data(noise: float) -> Data:
        if run.data.startswith("digits"):
            return digits(noise)
        if images is None:
            raise ValueError("Expected --images, the folder of CIFAR-10's parquet files. Got none.")
        return folder(images, noise)

    clean, noisy = data(0.0), data(run.noise)
    part = slice(None, run.subject.samples)
    train = ImageSet(noisy.train.images[part], noisy.train.labels[part], noisy.train.mean, noisy.train.std)
    wrong = (train.labels != clean.train.labels[part]).numpy()
    return StaleTask(train, wrong, noisy.test, noisy.channels, noisy.classes)


def train_stale(run: StaleRun, task: StaleTask, ended: Callable[[], object] = lambda: None) -> Facts:
    """Train, and return the facts of the run. ``ended`` is called after each epoch.

    ``accuracy`` is in percent. ``found`` has the AUC for wrong labels of hits over visits and, where they are kept, of
    running losses, when pruning may begin and at the end. An unpruned run has both.
    """
    began, policy = process_time(), ARMS[run.arm]
    pruner = Pruner(
        len(task.train),
        run.schedule,
        prune=run.prune,
        policy=policy or RunningLoss(),
        seed=run.seed,
        leave_out="delivery" if policy else "nothing",
    )
    dealer = Dealer(pruner, run.subject.batch_size)
    server = NewestWeights(run, task)
    found: dict[str, Any] = {}
    accuracies: list[float] = []
    for done in _epochs(dealer, server, run.staleness):
        if task.wrong.any() and done in (run.schedule.start, run.epochs):
            found["watched" if done < run.epochs else "end"] = judged(pruner, task.wrong)
        if done > run.epochs - LAST:
            accuracies.append(server.accuracy())
        ended()
    visits = [record["observed"] for record in pruner.history]
    reports = sum(dealer.staleness.values())
    return {
        "name": run.name, "kind": run.data, **asdict(run), "epochs": run.epochs, "visits": sum(visits),
        "accuracy": round(100 * float(np.mean(accuracies)), 3), "found": found,
        "mean_staleness": round(sum(k * n for k, n in dealer.staleness.items()) / reports, 4),
        "seconds": round(process_time() - began, 1),
    }  # fmt: skip


def _epochs(dealer: Dealer, server: "NewestWeights", staleness: int) -> Iterator[int]:
    """Let the workers take turns until the run is done; yield after each epoch how many are."""
    held: list[tuple[Deal, Tensor, int] | None] = [None] * (staleness + 1)
    while not dealer.is_finished:
        for worker, has in enumerate(held):
            if has is not None:
                deal, weights, version = has
                losses, gradient = server.compute(deal, weights)
                newest = server.push(gradient, deal.epoch)
                dealer.observe(deal, losses, version=version, newest=newest)
                if dealer.pruner.next_epoch > deal.epoch:
                    yield deal.epoch + 1
            answer = dealer.deal(worker)
            held[worker] = (answer, server.weights, server.version) if isinstance(answer, Deal) else None


def judged(pruner: Pruner, wrong: Mask) -> dict[str, float | None]:
    """AUC for wrong labels, by hits over visits and, where they are kept, by running losses."""
    scores = {"counts": pruner.hits / np.maximum(pruner.visits, 1)}
    if "excess" in pruner.arrays:
        scores["running-loss"] = pruner.arrays["excess"]
    return {name: round(found, 4) for name, array in scores.items() if (found := auc(array, wrong)) is not None}


def network_of(name: str, task: StaleTask) -> nn.Module:
    """LeNet, or a network with one hidden layer on images of 8x8, a tenth of LeNet's work."""
    if name == "mlp":
        sides = nn.Linear(64 * task.channels, 128), nn.Linear(128, task.classes)
        return nn.Sequential(nn.AvgPool2d(SIZE // 8), nn.Flatten(), sides[0], nn.ReLU(), sides[1])
    return build(name, task.channels, task.classes)


class NewestWeights:
    """The newest weights, which every gradient changes; and the network that workers compute with."""

    def __init__(self, run: StaleRun, task: StaleTask) -> None:
        torch.manual_seed(run.seed)
        self._run, self._task = run, task
        self._network = network_of(run.subject.network, task)
        self.weights = parameters_to_vector(self._network.parameters()).detach()
        """Shape (n,), float32. An update makes new ones."""
        self.version = 0
        self._speed = torch.zeros_like(self.weights)

    def compute(self, deal: Deal, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The losses of a batch, and the gradient of their mean, with some weights."""
        vector_to_parameters(weights, self._network.parameters())
        images, labels = self._task.train.batch(torch.from_numpy(np.array(deal.ids)))
        losses = F.cross_entropy(self._network(images), labels, reduction="none")
        gradients = torch.autograd.grad(losses.mean(), list(self._network.parameters()))
        return losses.detach(), parameters_to_vector(gradients)

    def push(self, gradient: Tensor, epoch: int) -> int:
        """Apply a gradient, by SGD with momentum; return the version to which it was applied."""
        rate = self._run.subject.rate * (1 + math.cos(math.pi * epoch / self._run.epochs)) / 2
        self._speed = self._run.subject.momentum * self._speed + gradient + WEIGHT_DECAY * self.weights
        self.weights = self.weights - rate * self._speed
        self.version += 1
        return self.version - 1

    def accuracy(self) -> float:
        """Share of the test images that the newest weights tell right."""
        vector_to_parameters(self.weights, self._network.parameters())
        test = self._task.test
        with torch.no_grad():
            right = 0
            for ids in torch.arange(len(test)).split(1000):
                images, labels = test.batch(ids)
                right += int((self._network(images).argmax(1) == labels).sum())
        return right / len(test)
