"""What a training on a head is given: policies by their signals, sliding windows, objectives, and learning rates."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from torch import Tensor
from torch.nn import functional as F

from prunedata import Pruner
from prunedata.policies import BoundedLoss, Known, Policy, Random, RunningLoss
from prunedata.policies.rules import MovingAverage
from prunedata.types import Array, Ids, Losses

__all__ = [
    "RATES",
    "SIGNALS",
    "Averaged",
    "BoundedMean",
    "CrossEntropy",
    "EarlyLearning",
    "Objective",
    "Signal",
    "SlidingWindow",
    "SmallLosses",
    "objective_of",
    "policy_of",
]

Signal = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Called with a batch's losses, shape (n,), scores, shape (n, classes), and labels; returns what a policy goes by."""


def _margin(scores: Tensor, labels: Tensor) -> Tensor:
    """The highest of the other classes less the label's, shape (n,)."""
    own = scores.gather(1, labels[:, None])
    return scores.scatter(1, labels[:, None], -torch.inf).amax(1) - own.squeeze(1)


SIGNALS: dict[str, Signal] = {
    "loss": lambda losses, scores, labels: losses,
    "margin": lambda losses, scores, labels: _margin(scores, labels),
    "bounded-margin": lambda losses, scores, labels: _margin(scores.softmax(1), labels),
}
"""By name: what a policy can go by."""


@dataclass(frozen=True)
class Averaged(MovingAverage):
    """Prune the samples with the highest moving average of what they were observed with."""

    array: ClassVar[str] = "average"

    def measure(self, losses: Losses, means: Losses) -> Losses:
        """The signals themselves."""
        return losses


@dataclass(frozen=True)
class BoundedMean:
    """As BoundedLoss, but all visits weigh the same, so that nothing is forgotten."""

    tolerance = 0.0
    needs_losses = True

    def arrays(self, samples: int) -> dict[str, Array]:
        """``doubt``, float32, 0 before the first visit, and ``seen``, uint16, how many visits are in it."""
        return {"doubt": np.zeros(samples, dtype=np.float32), "seen": np.zeros(samples, dtype=np.uint16)}

    def update(self, arrays: dict[str, Array], ids: Ids, losses: Losses, means: Losses) -> None:
        """Move each sample's mean by its loss."""
        doubt, seen = arrays["doubt"], arrays["seen"]
        seen[ids] += 1
        doubt[ids] += (BoundedLoss().measure(losses, means) - doubt[ids]) / seen[ids]

    def scores(self, known: Known) -> Array:
        """The means."""
        return known.arrays["doubt"]


def policy_of(name: str, wrong: NDArray[np.bool_]) -> Policy:
    """Return a policy by its name; ``wrong``, shape (samples,), says which labels are wrong."""

    @dataclass(frozen=True)
    class KnownWrong:
        """Prune the wrong labels, as if they were known."""

        tolerance: float = 0.0
        needs_losses = False

        def scores(self, known: Known) -> NDArray[np.uint8]:
            """1 for the wrong ones, 0 for the others: if more are pruned than are wrong, the rest are at random."""
            return wrong.view(np.uint8)

    policies: dict[str, Policy] = {
        "random": Random(),
        "running-loss": RunningLoss(),
        "averaged": Averaged(),
        "bounded": BoundedLoss(),
        "bounded-mean": BoundedMean(),
        "known-wrong": KnownWrong(),
    }
    if name not in policies:
        raise ValueError(f"Expected one of the policies {', '.join(policies)}. Got {name!r}.")
    return policies[name]


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
    """Early-learning regularization (ELR, Liu et al., 2020): hold on to what the network said of a sample before.

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


WARM, HIGH = 0.1, 3.0
"""A warm-up takes so much of the run, and ends so many times as high."""


def _cosine(progress: float) -> float:
    return (1 + math.cos(math.pi * progress)) / 2


def _step(progress: float) -> float:
    return float(0.1 ** ((progress >= 0.5) + (progress >= 0.75)))


def _warm(progress: float) -> float:
    return HIGH * min(progress / WARM, _cosine(max(0.0, progress - WARM) / (1 - WARM)))


RATES: dict[str, Callable[[float], float]] = {
    "cosine": _cosine,
    "step": _step,
    "constant": lambda progress: 1.0,
    "warm": _warm,
}
"""By name: called with how much of the run is over, from 0 to 1; returns what the rate is multiplied by."""


@dataclass
class SlidingWindow:
    """Which samples each epoch is trained on; how many follows from the losses.

    In every epoch a random part is left out. The others are put into groups by their last losses (k-means), of which an
    epoch keeps those in a window; from epoch to epoch the window moves on to harder ones, and then begins anew. The
    first epoch and the last ones keep all groups.

    Parameters
    ----------
    samples, epochs, seed : int
    ratio : float
        Share that is left out at random. With the others, what its authors take for CIFAR.
    groups : int
    window : float
        Share of the groups that an epoch keeps.
    until : float
        Share of the epochs after which all groups are kept.
    """

    samples: int
    epochs: int
    seed: int
    ratio: float = 0.1
    groups: int = 5
    window: float = 0.9
    until: float = 0.875
    losses: NDArray[np.float32] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.losses = np.full(self.samples, np.inf, np.float32)

    def ids(self, epoch: int) -> NDArray[np.int64]:
        """Those of an epoch, in random order."""
        some = np.random.default_rng((self.seed, epoch)).permutation(self.samples)
        some = some[: round((1 - self.ratio) * self.samples)]
        if epoch == 0 or epoch >= self.until * self.epochs:
            return some
        losses = self.losses[some]
        seen = np.isfinite(losses)  # what was never trained on is as hard as anything
        losses[~seen] = losses[seen].max()
        groups = min(self.groups, np.unique(losses).size)
        found = KMeans(groups, random_state=0, n_init=1).fit(losses[:, np.newaxis])
        place = np.argsort(np.argsort(found.cluster_centers_.ravel()))[found.labels_]
        size = max(1, round(groups * self.window))
        first = epoch % (groups - size + 1)
        return np.asarray(some[(place >= first) & (place < first + size)])

    def observe(self, ids: NDArray[np.integer[Any]], losses: NDArray[np.float32]) -> None:
        """Keep the last loss of each sample."""
        self.losses[ids] = losses
