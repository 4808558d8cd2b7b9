"""Prune the samples whose losses stay above those of their batches."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunedata.policies.last_loss import LARGEST
from prunedata.policies.moving_average import MovingAverage
from prunedata.types import Losses

__all__ = ["RunningLoss"]


@dataclass(frozen=True)
class RunningLoss(MovingAverage):
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

    array: ClassVar[str] = "excess"

    def said(self, losses: Losses, means: Losses) -> Losses:
        """How far they lie above the means."""
        excess = np.clip(losses, -LARGEST, LARGEST) - np.clip(means, -LARGEST, LARGEST)
        return np.clip(excess, -LARGEST, LARGEST)
