"""The policies of the pruned arms, some of which the library doesn't have, and what they go by."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prunedata import BoundedLoss, Known, Policy, Random, RunningLoss

__all__ = ["SIGNALS", "Averaged", "Signal", "policy_of"]

Array = NDArray[Any]
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
class Averaged:
    """Prune the samples with the highest average of what was observed of them.

    It is not measured against the batch's mean: that of losses falls for all that are still trained on, and stays for
    those that are not.

    Parameters
    ----------
    decay : float or None
        Weight of all earlier visits beside the newest one; at least 0 and below 1. None: all visits weigh the same.
    bounded : bool
        Average ``1 - exp(-loss)``, how little the network believes the label: of cross-entropies it is one less the
        label's probability, so no loss counts for more than 1.
    """

    decay: float | None = 0.8
    bounded: bool = True
    tolerance = 0.0
    needs_losses = True

    def __post_init__(self) -> None:
        if self.decay is not None and not 0 <= self.decay < 1:
            raise ValueError(f"Expected decay to be at least 0 and below 1, or None. Got {self.decay}.")

    def arrays(self, samples: int) -> dict[str, Array]:
        """``average``, float32, 0 before the first visit, and ``seen``, uint16, how many visits are in it."""
        return {"average": np.zeros(samples, dtype=np.float32), "seen": np.zeros(samples, dtype=np.uint16)}

    def update(
        self, arrays: dict[str, Array], ids: NDArray[np.int64], losses: NDArray[np.float64], means: NDArray[np.float64]
    ) -> None:
        """Move each sample's average by each of its losses, in the order of observation."""
        average, seen = arrays["average"], arrays["seen"]
        now = -np.expm1(-np.maximum(losses, 0)) if self.bounded else losses
        while ids.size:
            _, first = np.unique(ids, return_index=True)  # a block may name a sample several times
            which = ids[first]
            seen[which] += 1
            old = 1 - 1 / seen[which] if self.decay is None else self.decay
            average[which] = old * average[which] + (1 - old) * now[first]
            ids, now = np.delete(ids, first), np.delete(now, first)

    def scores(self, known: Known) -> Array:
        """The averages."""
        return known.arrays["average"]


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
        "averaged": Averaged(bounded=False),
        "bounded": BoundedLoss(),
        "bounded-mean": Averaged(decay=None),
        "known-wrong": KnownWrong(),
    }
    if name not in policies:
        raise ValueError(f"Expected one of the policies {', '.join(policies)}. Got {name!r}.")
    return policies[name]
