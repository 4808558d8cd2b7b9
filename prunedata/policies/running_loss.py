"""Prune the samples whose losses stay above those of their batches."""

from dataclasses import dataclass

import numpy as np

from prunedata.checks import real
from prunedata.errors import PrunedataError
from prunedata.policies.last_loss import LARGEST
from prunedata.policies.protocol import Known
from prunedata.types import Array, Ids, Losses

__all__ = ["RunningLoss"]


@dataclass(frozen=True)
class RunningLoss:
    """Prune the samples whose losses stay above those of their batches: an exponential moving average of the excess.

    Each visit moves a sample's ``excess`` towards its loss less its batch's mean. DroppingCount asks in how many visits
    a loss was above the mean; this asks by how much and forgets what is long past, so it finds labels that are wrong
    at random earlier and with fewer visits. An excess, unlike a loss, doesn't age while its sample is pruned and the
    losses of all the others fall.

    Parameters
    ----------
    decay : float
        Weight of all earlier visits beside the newest one; at least 0 and below 1. 0 is the last loss alone.
    """

    decay: float = 0.8
    tolerance = 0.0
    needs_losses = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "decay", real("decay", self.decay, 0.0))
        if self.decay >= 1:
            raise PrunedataError(f"Expected decay to be below 1. Got {self.decay}: no loss would ever count.")

    def arrays(self, samples: int) -> dict[str, Array]:
        """``excess``, float32, 0 before the first visit."""
        return {"excess": np.zeros(samples, dtype=np.float32)}

    def update(self, arrays: dict[str, Array], ids: Ids, losses: Losses, means: Losses) -> None:
        """Move each sample's average by its loss."""
        excess = np.clip(losses, -LARGEST, LARGEST) - np.clip(means, -LARGEST, LARGEST)
        excess = np.clip(excess, -LARGEST, LARGEST)
        average = arrays["excess"]
        average[ids] = self.decay * average[ids].astype(np.float64) + (1 - self.decay) * excess

    def scores(self, known: Known) -> Array:
        """The averages."""
        return known.arrays["excess"]
