"""The control: as many samples, chosen at random."""

from dataclasses import dataclass

import numpy as np

from prunedata.policies.protocol import Known
from prunedata.types import Array

__all__ = ["Random"]


@dataclass(frozen=True)
class Random:
    """The control that the paper lacks: prune as many samples, chosen at random anew in every pruned epoch."""

    tolerance = 0.0
    needs_losses = False

    def scores(self, known: Known) -> Array:
        """All alike: the selection's hash decides."""
        return np.broadcast_to(np.uint8(0), known.counts.shape)
