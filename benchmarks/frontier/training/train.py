"""One run of the frontier: a network trained on all samples, or on those that a policy keeps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.frontier.arms import ARMS, SHARES, Plan
from benchmarks.frontier.data.material import HeadTask, Part
from benchmarks.frontier.training.networks import NETWORKS
from benchmarks.frontier.training.policies import (
    RATES,
    SIGNALS,
    Counting,
    CrossEntropy,
    Objective,
    Signal,
    objective_of,
)
from benchmarks.frontier.training.selection import ByPruner, Selection, selection_of
from prunedata import Pruner, Schedule
from prunedata.plan.onset import TRUST, trust_in

__all__ = ["Epoch", "Settings", "fit", "right", "scores_of", "train", "trust", "watched"]

AT_ONCE = 1000
"""Samples that are looked at together where nothing is learnt."""


@dataclass(frozen=True)
class Settings:
    """What all runs of a subject have in common.

    Parameters
    ----------
    network : str
        A name of :data:`benchmarks.frontier.training.networks.NETWORKS`.
    hidden : tuple of int
        Sizes of its hidden layers.
    batch_size : int
    rate : float
        The learning rate at the beginning. Where an arm says nothing else, it falls to 0 like a cosine.
    weight_decay, momentum : float
    optimizer : {"sgd", "adamw"}
        Stochastic gradient descent with Nesterov's momentum, or AdamW, which has momentum of its own.
    """

    network: str = "layers"
    hidden: tuple[int, ...] = (256,)
    batch_size: int = 128
    rate: float = 0.01
    weight_decay: float = 5e-4
    momentum: float = 0.9
    optimizer: Literal["sgd", "adamw"] = "sgd"

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
    worst : float
        The same of the class of the test set that does worst.
    found : float or None
        Of the samples left out, the percentage with a wrong label; None if none was left out.
    """

    visits: int
    accuracy: float
    validation: float
    worst: float
    found: float | None


def train(
    plan: Plan,
    task: HeadTask,
    settings: Settings,
    selection: Selection | None = None,
    objective: Objective | None = None,
) -> Iterator[Epoch]:
    """Train one run, and yield how far it stands after each epoch.

    Equal plans, tasks and settings give equal epochs on the same machine. Features may be float32 or bfloat16. If
    nothing else is given, selection and objective are the plan's.
    """
    torch.manual_seed(plan.seed)
    arm = ARMS[plan.arm]
    network = NETWORKS[settings.network](task.train.features.shape[1], settings.hidden, task.classes, arm.dropout)
    selection = selection or selection_of(plan, task, settings.batch_size)
    share = SHARES[plan.kind]
    aim = objective or objective_of(arm.objective, arm.smoothing, len(task.train), task.classes, share, plan.start)
    decayed = replace(settings, weight_decay=settings.weight_decay * arm.decay)
    figure_of = task.held_out.first(arm.figure_of) if arm.figure_of else task.held_out
    if arm.holdout and isinstance(selection, ByPruner):
        aim = Counting(selection.pruner)
    steps = fit(network, task.train, selection, plan.epochs, decayed, aim, SIGNALS[arm.signal], RATES[arm.rates])
    for visits in steps:
        left_out = selection.left_out
        wrong = None if left_out is None else round(100 * float(task.wrong[left_out].mean()), 1)
        validation = right(network, task.held_out)
        if arm.policy and arm.figure and not arm.holdout:
            selection.validated(trust(network, figure_of) if arm.figure == "trust" else validation)
        said = scores_of(network, task.test.features).argmax(1) == task.test.labels
        worst = min(_percent(said[task.test.labels == one]) for one in task.test.labels.unique())
        yield Epoch(visits, _percent(said), validation, worst, wrong)


def watched(task: HeadTask, settings: Settings, seed: int, epochs: int) -> tuple[Pruner, nn.Module, Iterator[int]]:
    """Begin to train on all samples: return the Pruner that watches, the network, and what :func:`fit` yields."""
    torch.manual_seed(seed)
    schedule = Schedule(epochs, epochs, epochs - 1, 1, 1)
    pruner = Pruner(len(task.train), schedule, prune=0.2, seed=seed, classes=task.classes, leave_out="nothing")
    network = NETWORKS[settings.network](task.train.features.shape[1], settings.hidden, task.classes, 0.0)
    return pruner, network, fit(network, task.train, ByPruner(pruner, settings.batch_size), epochs, settings)


def fit(
    network: nn.Module,
    part: Part,
    selection: Selection,
    length: int,
    settings: Settings,
    objective: Objective = CrossEntropy(),  # noqa: B008, it is frozen
    signal: Signal = SIGNALS["loss"],
    rate_at: Callable[[float], float] = RATES["cosine"],
) -> Iterator[int]:
    """Train a network for ``length`` epochs on what is chosen, and yield the visits of each when it is done."""
    step = _optimizer(network, settings)
    for number, batches in enumerate(selection.epochs()):
        network.train()
        for at, ids in enumerate(batches):
            progress = (number + at / len(batches)) / length
            step.param_groups[0]["lr"] = settings.rate * rate_at(progress)
            which = torch.from_numpy(ids)
            scores, labels = network(part.features[which]), part.labels[which]
            losses = F.cross_entropy(scores, labels, reduction="none")
            step.zero_grad()
            objective(losses, scores, labels, which, number).backward()
            step.step()
            selection.observe(ids, signal(losses.detach(), scores.detach(), labels).numpy())
        yield sum(map(len, batches))


def _optimizer(network: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    parameters, decay = network.parameters(), settings.weight_decay
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(parameters, settings.rate, weight_decay=decay, fused=True)
    return torch.optim.SGD(parameters, settings.rate, settings.momentum, 0, decay, nesterov=True, fused=True)


@torch.no_grad()
def scores_of(network: nn.Module, features: Tensor) -> Tensor:
    """Return the scores of each class without learning, float32 of shape (n, classes)."""
    network.eval()
    return torch.cat([network(some) for some in features.split(AT_ONCE)])


def trust(network: nn.Module, part: Part) -> float:
    """Return how far the network trusts the labels: the mean fourth root of their probability."""
    losses = F.cross_entropy(scores_of(network, part.features), part.labels, reduction="none")
    return trust_in(losses.numpy()) / (TRUST * len(part))


def right(network: nn.Module, part: Part) -> float:
    """Return how many percent of the labels the network says."""
    return _percent(scores_of(network, part.features).argmax(1) == part.labels)


def _percent(right: Tensor) -> float:
    return round(100 * float(right.float().mean()), 2)
