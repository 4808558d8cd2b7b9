"""One run of the frontier: a network trained on all samples, or on those that a policy keeps."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.frontier.data.material import HeadTask, Part
from benchmarks.frontier.networks import NETWORKS
from benchmarks.frontier.plan import ARMS, Plan
from benchmarks.frontier.policies import policy_of
from prunedata import Pruner, Schedule

__all__ = ["Epoch", "Settings", "train"]


@dataclass(frozen=True)
class Settings:
    """What all runs of a subject have in common.

    Parameters
    ----------
    network : str
        A name of :data:`benchmarks.frontier.networks.NETWORKS`.
    hidden : tuple of int
        Sizes of its hidden layers.
    batch_size : int
    rate : float
        The learning rate at the beginning; it falls to 0 over the run as a cosine does.
    weight_decay, momentum : float
    """

    network: str = "layers"
    hidden: tuple[int, ...] = (256,)
    batch_size: int = 128
    rate: float = 0.01
    weight_decay: float = 5e-4
    momentum: float = 0.9

    def __post_init__(self) -> None:
        if self.network not in NETWORKS:
            raise ValueError(f"Expected one of the networks {', '.join(NETWORKS)}. Got {self.network!r}.")
        if not self.hidden or min(self.hidden) < 1 or self.batch_size < 1:
            raise ValueError(f"Expected a hidden unit and a sample in a batch at least. Got {self}.")
        if self.rate <= 0 or self.weight_decay < 0 or not 0 <= self.momentum < 1:
            raise ValueError(f"Expected a rate above 0, a decay of at least 0, a momentum from 0 to 1. Got {self}.")


@dataclass(frozen=True)
class Epoch:
    """How far a run stands after an epoch.

    Attributes
    ----------
    visits : int
        Samples trained on in this epoch.
    accuracy, validation : float
        Percent right, of the test set and of the labels held out, some of which are wrong.
    found : float or None
        Of the samples left out, the percentage with a wrong label; None if none was left out.
    """

    visits: int
    accuracy: float
    validation: float
    found: float | None


def train(plan: Plan, task: HeadTask, settings: Settings) -> Iterator[Epoch]:
    """Train one run, and yield how far it stands after each epoch.

    Equal plans, tasks and settings give equal epochs on the same machine. Features may be float32 or bfloat16.
    """
    torch.manual_seed(plan.seed)
    arm = ARMS[plan.arm]
    network = NETWORKS[settings.network](task.train.features.shape[1], settings.hidden, task.classes, arm.dropout)
    step = torch.optim.SGD(
        network.parameters(), settings.rate, settings.momentum, 0, settings.weight_decay, nesterov=True, fused=True
    )
    pruner = _pruner(plan, task, settings.batch_size) if arm.policy else None
    for number, (batches, left_out) in enumerate(_epochs(plan, len(task.train), settings.batch_size, pruner)):
        network.train()
        for at, ids in enumerate(batches):
            progress = (number + at / len(batches)) / plan.epochs
            step.param_groups[0]["lr"] = settings.rate * (1 + math.cos(math.pi * progress)) / 2
            losses = _step(network, step, task.train, torch.from_numpy(ids), arm.smoothing)
            if pruner is not None:
                pruner.observe(ids, losses.numpy())
        wrong = None if left_out is None else round(100 * float(task.wrong[left_out].mean()), 1)
        yield Epoch(sum(map(len, batches)), _right(network, task.test), _right(network, task.held_out), wrong)


def _step(network: nn.Module, step: torch.optim.Optimizer, part: Part, ids: Tensor, smoothing: float) -> Tensor:
    """Train on one batch and return its losses, shape (n,), detached."""
    losses = F.cross_entropy(network(part.features[ids]), part.labels[ids], reduction="none", label_smoothing=smoothing)
    step.zero_grad()
    losses.mean().backward()
    step.step()
    return losses.detach()


def _pruner(plan: Plan, task: HeadTask, batch_size: int) -> Pruner:
    schedule = Schedule(plan.epochs, window=plan.epochs, start=plan.start, block=1, pruned_per_block=1)
    policy = policy_of(ARMS[plan.arm].policy, task.wrong)
    return Pruner(len(task.train), schedule, prune=plan.prune, policy=policy, seed=plan.seed, batch_size=batch_size)


def _epochs(
    plan: Plan, samples: int, batch_size: int, pruner: Pruner | None
) -> Iterator[tuple[list[NDArray[Any]], NDArray[np.bool_] | None]]:
    """Yield the batches of each epoch, and which samples it leaves out; None if none. Regular runs know no pruner."""
    if pruner is not None:
        for epoch in pruner.epochs():
            yield list(epoch.batches(batch_size)), ~epoch.keep if epoch.pruned else None
        return
    for number in range(plan.epochs):
        order = np.random.default_rng((plan.seed, number)).permutation(samples)
        yield [order[first : first + batch_size] for first in range(0, samples, batch_size)], None


@torch.no_grad()
def _right(network: nn.Module, part: Part) -> float:
    """Return how many percent of the labels the network says."""
    network.eval()
    return round(100 * float((network(part.features).argmax(1) == part.labels).float().mean()), 2)
