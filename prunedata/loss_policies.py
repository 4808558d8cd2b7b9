"""Policies that go by the losses themselves, of which each keeps an array of its own."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from prunedata.checks import real
from prunedata.counts import smallest_unsigned
from prunedata.errors import PrunedataError
from prunedata.policy import Array, Ids, Known, Losses, Mask, check_rank, hit_rate

__all__ = ["EasyPruning", "LossRanked", "RunningLoss"]

LARGEST = float(np.finfo(np.float32).max)
EXACT = 1 << 24
"""Up to here float32 holds every integer."""


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
        """Move each sample's average by each of its losses, in the order of observation."""
        excess = np.clip(losses, -LARGEST, LARGEST) - np.clip(means, -LARGEST, LARGEST)
        excess = np.clip(excess, -LARGEST, LARGEST)
        average = arrays["excess"]
        for now in _rounds(ids, average):
            which = ids[now]
            average[which] = self.decay * average[which].astype(np.float64) + (1 - self.decay) * excess[now]

    def scores(self, known: Known) -> Array:
        """The averages."""
        return known.arrays["excess"]


def _rounds(ids: Ids, scratch: Array) -> Iterator[slice | Ids]:
    """Yield where each id stands for the first time, the second, and so on: one round, unless samples repeat.

    No visit of a sample may be lost, wherever blocks were cut. ``scratch`` is lent, a number a sample, and given back
    as it was: memory for all samples, new for every block, would cost a large data set more than all else.
    """
    places = np.arange(ids.size, dtype=scratch.dtype)
    before = scratch[ids]
    scratch[ids] = places
    repeat = ids.size > EXACT or not np.array_equal(scratch[ids], places)
    scratch[ids] = before
    if not repeat:
        yield slice(None)
        return
    order = np.argsort(ids, kind="stable")
    new = np.append(True, np.diff(ids[order]) != 0)
    starts = np.flatnonzero(new)
    nth = np.arange(ids.size) - np.repeat(starts, np.diff(np.append(starts, ids.size)))
    for turn in range(int(nth.max()) + 1):
        yield order[nth == turn]


class _LastLosses:
    """Keeps the loss that each sample had last: float32, NaN before its first."""

    def arrays(self, samples: int) -> dict[str, Array]:
        """``loss``, the last loss of each sample."""
        return {"loss": np.full(samples, np.nan, dtype=np.float32)}

    def update(self, arrays: dict[str, Array], ids: Ids, losses: Losses, means: Losses) -> None:
        """Overwrite the losses; of a sample that is named several times the last one holds."""
        arrays["loss"][ids] = np.clip(losses, -LARGEST, LARGEST)


@dataclass(frozen=True)
class LossRanked(_LastLosses):
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
        least = min(math.ceil(known.pruned / self.ratio), losses.size)
        if np.count_nonzero(low) < least:
            low = losses <= np.partition(losses, least - 1)[least - 1]
        return np.asarray(low)


@dataclass(frozen=True)
class EasyPruning(_LastLosses):
    """Prune the easiest samples: those with the lowest losses, or with the fewest hits. The mirror of DroppingCount.

    A sample that is pruned is not observed, and stays as easy as it was last seen. So the same samples are pruned
    until an epoch on all samples has seen them again: leave one in every block.

    Parameters
    ----------
    rank : {"loss", "window", "run"}
        ``"loss"``: order by each sample's last loss. ``"window"``, ``"run"``: by its hits, as DroppingCount.
    tolerance : float
        Of a hit, as DroppingCount's.
    """

    rank: str = "loss"
    tolerance: float = 0.0
    needs_losses = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "tolerance", real("tolerance", self.tolerance, 0.0))
        check_rank(self.rank, "loss", "window", "run")

    def arrays(self, samples: int) -> dict[str, Array]:
        """``loss``, the last loss of each sample; none where hits decide."""
        return super().arrays(samples) if self.rank == "loss" else {}

    def scores(self, known: Known) -> Array:
        """The losses, or hits, upside down. Samples never seen come last."""
        if self.rank == "loss":
            losses = known.arrays["loss"]
            return np.where(np.isnan(losses), np.float32(-np.inf), -losses)
        hard = known.counts if self.rank == "window" else hit_rate(known)
        top = int(hard.max()) + 1  # so that a sample seen and always hit comes before those never seen
        dtype = smallest_unsigned(top)
        return np.where(known.visits > 0, np.subtract(top, hard, dtype=dtype), dtype.type(0))
