"""What policies share that keep an exponential moving average of each sample."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunedata.checks import real
from prunedata.errors import PrunedataError
from prunedata.policies.protocol import Known
from prunedata.types import Array, Ids, Losses

__all__ = ["MovingAverage"]


@dataclass(frozen=True)
class MovingAverage(ABC):
    """Prune the samples with the highest average of what a loss says.

    Parameters
    ----------
    decay : float
        Weight of all earlier visits beside the newest one; at least 0 and below 1. 0 is the last loss alone.
    """

    decay: float = 0.8
    tolerance = 0.0
    needs_losses = True
    array: ClassVar[str]
    """Name of the averages: float32, 0 before the first visit."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "decay", real("decay", self.decay, 0.0))
        if self.decay >= 1:
            raise PrunedataError(f"Expected decay to be below 1. Got {self.decay}: no loss would ever count.")

    @abstractmethod
    def said(self, losses: Losses, means: Losses) -> Losses:
        """What losses say, by themselves and the means of their batches: float64, shape (n,), within float32."""

    def arrays(self, samples: int) -> dict[str, Array]:
        """The averages."""
        return {self.array: np.zeros(samples, dtype=np.float32)}

    def update(self, arrays: dict[str, Array], ids: Ids, losses: Losses, means: Losses) -> None:
        """Move each sample's average by its loss."""
        average = arrays[self.array]
        average[ids] = self.decay * average[ids].astype(np.float64) + (1 - self.decay) * self.said(losses, means)

    def scores(self, known: Known) -> Array:
        """The averages."""
        return known.arrays[self.array]
