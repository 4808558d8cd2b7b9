"""Prune the samples whose losses lay above those of their batches, in the mean of all visits."""

from dataclasses import dataclass

from prunedata.policies.protocol import Known
from prunedata.types import Array

__all__ = ["MEAN_EXCESS", "MeanExcess"]

MEAN_EXCESS = "mean_excess"
"""The array of the means over all finished epochs, float32; of the open epoch it has sums."""


@dataclass(frozen=True)
class MeanExcess:
    """Prune the samples whose losses lay furthest above those of their batches, in the mean of all visits.

    Every run keeps this mean in the array ``mean_excess``. In a run that is told its validation figure
    (:meth:`prunedata.Pruner.validated`) it goes up to the turn and no further: so what is left out from there on stays
    left out, and samples that are learnt by heart later don't come to look right. ``policy="auto"`` leaves out by it.
    """

    tolerance = 0.0
    needs_losses = True

    def scores(self, known: Known) -> Array:
        """The means."""
        return known.arrays[MEAN_EXCESS]
