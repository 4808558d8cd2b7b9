"""InfoBatch's rule: prune at random among low losses, and weigh what is kept."""

import math
from dataclasses import dataclass

import numpy as np

from prunedata.checks import real
from prunedata.errors import PrunedataError
from prunedata.policies.last_loss import LastLoss
from prunedata.policies.protocol import Known
from prunedata.types import Array, Mask

__all__ = ["LossRanked"]


@dataclass(frozen=True)
class LossRanked(LastLoss):
    """InfoBatch's rule (Qin et al., ICLR 2024): prune at random among low losses, and let those kept count for all.

    The group to prune from are the samples whose last loss is below the mean of all last losses. Exactly as many
    as the run prunes are drawn from it, anew in every pruned epoch. The ``k`` that stay of a group of ``m`` get the
    weight ``m / k``, all others 1: so the expected gradient is that of all samples, and the weights of the kept
    samples add up to the number of samples.

    Parameters
    ----------
    ratio : float
        At most this fraction of the group is pruned, which bounds the weights by ``1 / (1 - ratio)``. If it would
        be more, the samples with the next lowest losses join the group (with those that tie). Only where the
        group is all samples may the fraction be passed. Strictly between 0 and 1.
    """

    ratio: float = 0.5
    tolerance = 0.0
    needs_losses = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "ratio", real("ratio", self.ratio, 0.0, above=True))
        if self.ratio >= 1:
            raise PrunedataError(f"Expected ratio to be below 1. Got {self.ratio}: some of the group must stay.")

    def scores(self, known: Known) -> Array:
        """1 for the group, 0 for the others: the selection's hash draws from the group."""
        return self._group(known).view(np.uint8)

    def weights(self, keep: Mask, known: Known) -> Array:
        """Float32: ``m / k`` for the kept samples of the group, 1 for the other kept ones, 0 for pruned ones."""
        group = self._group(known)
        kept = group & keep
        weights = keep.astype(np.float32)
        weights[kept] = np.count_nonzero(group) / np.count_nonzero(kept)
        return weights

    def _group(self, known: Known) -> Mask:
        losses = known.arrays["loss"]
        seen = ~np.isnan(losses)
        if not seen.any():
            return np.ones(losses.size, dtype=np.bool_)
        # Those never seen come last: nothing says that they are easy.
        losses = np.where(seen, losses, np.float32(np.inf))
        low = losses < losses[seen].mean(dtype=np.float64)
        least = math.ceil(min(known.num_pruned / self.ratio, losses.size))
        if np.count_nonzero(low) < least:
            low = losses <= np.partition(losses, least - 1)[least - 1]
        return np.asarray(low)
