"""The policies of the pruned arms, one of which the library doesn't have."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prunedata import Known, Policy, Random, RunningLoss

__all__ = ["BoundedLoss", "policy_of"]

Array = NDArray[Any]


@dataclass(frozen=True)
class BoundedLoss:
    """Prune the samples whose labels the network believes least: an exponential average of ``1 - exp(-loss)``.

    With cross-entropy that is one less the probability of the label, so no loss counts for more than 1. It is not
    measured against the batch's mean: it falls for all that are still trained on, and stays for those that are not.

    Parameters
    ----------
    decay : float
        Weight of all earlier visits beside the newest one; at least 0 and below 1.
    """

    decay: float = 0.8
    tolerance = 0.0
    needs_losses = True

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"Expected decay to be at least 0 and below 1. Got {self.decay}.")

    def arrays(self, samples: int) -> dict[str, Array]:
        """``doubt``, float32, 0 before the first visit."""
        return {"doubt": np.zeros(samples, dtype=np.float32)}

    def update(
        self, arrays: dict[str, Array], ids: NDArray[np.int64], losses: NDArray[np.float64], means: NDArray[np.float64]
    ) -> None:
        """Move each sample's average by each of its losses, in the order of observation."""
        doubt, now = arrays["doubt"], -np.expm1(-np.maximum(losses, 0))
        while ids.size:
            _, first = np.unique(ids, return_index=True)  # a block may name a sample several times
            which = ids[first]
            doubt[which] = self.decay * doubt[which] + (1 - self.decay) * now[first]
            ids, now = np.delete(ids, first), np.delete(now, first)

    def scores(self, known: Known) -> Array:
        """The averages."""
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
        "bounded": BoundedLoss(),
        "known-wrong": KnownWrong(),
    }
    if name not in policies:
        raise ValueError(f"Expected one of the policies {', '.join(policies)}. Got {name!r}.")
    return policies[name]
