"""The policies of the pruned arms, some of which the library doesn't have, and what they go by."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prunedata.policies import BoundedLoss, Known, Policy, Random, RunningLoss
from prunedata.policies.rules import MovingAverage
from prunedata.types import Array, Ids, Losses

__all__ = ["SIGNALS", "Averaged", "BoundedMean", "Signal", "policy_of"]

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
