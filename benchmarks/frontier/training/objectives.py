"""What a step of training makes small: cross-entropy, or what others propose against wrong labels."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from prunedata import Pruner

__all__ = ["CrossEntropy", "EarlyLearning", "Objective", "SmallLosses", "objective_of"]


class Objective(Protocol):
    """Called with a batch; returns what to make small, a tensor of no dimensions."""

    def __call__(self, losses: Tensor, scores: Tensor, labels: Tensor, ids: Tensor, epoch: int) -> Tensor:
        """Weigh the cross-entropies, shape (n,), or what was scored, shape (n, classes)."""
        ...


@dataclass(frozen=True)
class CrossEntropy:
    """The mean over the batch, of labels of which ``smoothing`` is spread over all classes."""

    smoothing: float = 0.0

    def __call__(self, losses: Tensor, scores: Tensor, labels: Tensor, ids: Tensor, epoch: int) -> Tensor:
        """Return the mean."""
        return F.cross_entropy(scores, labels, label_smoothing=self.smoothing) if self.smoothing else losses.mean()


class EarlyLearning:
    """Early-learning regularisation (ELR, Liu et al., 2020): hold on to what the network said of a sample before.

    Cross-entropy and ``strength * log(1 - <p, t>)``: ``p`` are the probabilities now, ``t`` their running average.

    Parameters
    ----------
    samples, classes : int
    strength, memory : float
        The published values for CIFAR-10.
    """

    def __init__(self, samples: int, classes: int, strength: float = 3.0, memory: float = 0.7) -> None:
        self.strength, self.memory = strength, memory
        self.targets = torch.zeros(samples, classes)

    def __call__(self, losses: Tensor, scores: Tensor, labels: Tensor, ids: Tensor, epoch: int) -> Tensor:
        """Return the mean, and move the averages of these samples."""
        likely = scores.softmax(1).clamp(1e-4, 1 - 1e-4)
        now = likely.detach() / likely.detach().sum(1, keepdim=True)
        self.targets[ids] = self.memory * self.targets[ids] + (1 - self.memory) * now
        return losses.mean() + self.strength * (1 - (self.targets[ids] * likely).sum(1)).log().mean()


@dataclass(frozen=True)
class SmallLosses:
    """From epoch ``start`` on only the smallest losses of each batch: a share of ``1 - without``."""

    without: float
    start: int

    def __call__(self, losses: Tensor, scores: Tensor, labels: Tensor, ids: Tensor, epoch: int) -> Tensor:
        """Return the mean of the smallest."""
        kept = max(1, round((1 - self.without) * len(losses)))
        return losses.topk(kept, largest=False).values.mean() if epoch >= self.start else losses.mean()


@dataclass(frozen=True)
class Counting:
    """The mean over the samples of a batch that count."""

    pruner: Pruner

    def __call__(self, losses: Tensor, scores: Tensor, labels: Tensor, ids: Tensor, epoch: int) -> Tensor:
        """Return it, as every loader's ``observe`` does."""
        return (losses * torch.from_numpy(self.pruner.current.factors(ids.numpy()))).mean()


def objective_of(name: str, smoothing: float, samples: int, classes: int, without: float, start: int) -> Objective:
    """Return an objective by its name: "" for cross-entropy, "elr" or "small-loss"."""
    if name not in ("", "elr", "small-loss"):
        raise ValueError(f"Expected one of the objectives elr and small-loss, or none. Got {name!r}.")
    if name == "elr":
        return EarlyLearning(samples, classes)
    return SmallLosses(without, start) if name else CrossEntropy(smoothing)
