"""Prune the samples whose labels the network believes least."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunedata.policies.moving_average import MovingAverage
from prunedata.types import Losses

__all__ = ["BoundedLoss"]


@dataclass(frozen=True)
class BoundedLoss(MovingAverage):
    """Prune the samples whose labels the network believes least: an exponential moving average of ``1 - exp(-loss)``.

    Of a cross-entropy ``exp(-loss)`` is the label's probability. So each visit moves a sample's ``doubt`` towards what
    that probability lacks of 1, and no loss counts for more than 1, however high it is. It is not held against the
    batch's mean. While samples are learnt their doubt falls, and that of pruned ones stays. Losses must be
    cross-entropies, or others of which 0 is the least; one below 0 counts as 0.

    Parameters
    ----------
    decay : float
        Weight of all earlier visits beside the newest one; at least 0 and below 1. 0 is the last loss alone.
    """

    array: ClassVar[str] = "doubt"

    def said(self, losses: Losses, means: Losses) -> Losses:
        """How little they say that the labels are believed, 0 to 1."""
        return -np.expm1(-np.maximum(losses, 0.0))
