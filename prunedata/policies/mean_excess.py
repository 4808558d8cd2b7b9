"""How far losses lay above those of their batches, in the mean of all visits: every run keeps it."""

__all__ = ["MEAN_EXCESS"]

MEAN_EXCESS = "mean_excess"
"""The array of the means over all finished epochs, float32; of the open epoch it has sums."""
