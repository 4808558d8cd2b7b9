"""The policies of the library, and the arrays that they keep."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from prunedata.checks import real, shown
from prunedata.errors import PrunedataError
from prunedata.options import one_of
from prunedata.policies.protocol import Known, Policy
from prunedata.types import Array, Arrays, Ids, Losses, Mask, smallest_unsigned


def hit_rate(known: Known) -> npt.NDArray[np.uint16]:
    """Return hits over visits of the whole run in steps of 1/65535, shape (samples,); 0 for unobserved samples."""
    scaled = known.hits.astype(np.uint64) * np.uint64(65535)
    return (scaled // np.maximum(known.visits, 1)).astype(np.uint16)


LARGEST = float(np.finfo(np.float32).max)


class LastLoss:
    """Keeps the last loss of each sample: float32, NaN before the first."""

    def arrays(self, samples: int) -> dict[str, Array]:
        """Return ``loss``, the last loss of each sample."""
        return {"loss": np.full(samples, np.nan, dtype=np.float32)}

    def update(self, arrays: dict[str, Array], ids: Ids, losses: Losses, means: Losses) -> None:
        """Overwrite the losses of the samples."""
        arrays["loss"][ids] = np.clip(losses, -LARGEST, LARGEST)


@dataclass(frozen=True)
class MovingAverage(ABC):
    """Prune the samples with the highest moving average of a measure of their losses.

    ``decay`` is as for :class:`RunningLoss`.
    """

    decay: float = 0.8
    tolerance = 0.0
    needs_losses = True
    array: ClassVar[str]
    """Name of the array of averages: float32, 0 before the first visit."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "decay", real("decay", self.decay, 0.0))
        if self.decay >= 1:
            raise PrunedataError(f"Expected decay to be below 1. Got {self.decay}, with which no loss would count.")

    @abstractmethod
    def measure(self, losses: Losses, means: Losses) -> Losses:
        """Return the measure of losses with these batch means: float64, shape (n,), in the range of float32."""

    def arrays(self, samples: int) -> dict[str, Array]:
        """Return the array of averages."""
        return {self.array: np.zeros(samples, dtype=np.float32)}

    def update(self, arrays: dict[str, Array], ids: Ids, losses: Losses, means: Losses) -> None:
        """Update each sample's average by its loss."""
        average = arrays[self.array]
        average[ids] = self.decay * average[ids].astype(np.float64) + (1 - self.decay) * self.measure(losses, means)

    def scores(self, known: Known) -> Array:
        """Return the averages."""
        return known.arrays[self.array]


@dataclass(frozen=True)
class DroppingCount:
    """Prune the samples that were most often above their batch's mean: the paper's rule (Algorithms 1 and 2).

    It needs batches of at least two samples, as a single loss is never above its own mean.

    Parameters
    ----------
    tolerance : float
        A loss is a hit if it is above ``mean + tolerance * abs(mean)`` of its batch. At least 0.
    by : {"window", "run"}
        ``"window"``, the paper: sort by the hits of the current window. ``"run"``: sort by hits over visits of
        the whole run, which also ranks the samples just after a window has begun.
    """

    tolerance: float = 0.0
    by: str = "window"
    needs_losses = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "tolerance", real("tolerance", self.tolerance, 0.0))
        one_of("window", "run")("by", self.by)

    def scores(self, known: Known) -> Array:
        """Return the counts; or hits over visits in steps of 1/65535, distinct for all fractions up to 255 visits."""
        return known.counts if self.by == "window" else hit_rate(known)


@dataclass(frozen=True)
class EasyPruning(LastLoss):
    """Prune the easiest samples, with the lowest losses or the fewest hits: the opposite of DroppingCount.

    A pruned sample is not observed, so its last loss stays low, and the same samples are pruned until an epoch on all
    samples observes them again: leave one such epoch in every block.

    Parameters
    ----------
    by : {"loss", "window", "run"}
        ``"loss"``: sort by each sample's last loss. ``"window"``, ``"run"``: by its hits, as DroppingCount.
    tolerance : float
        The tolerance of a hit, as for DroppingCount.
    """

    by: str = "loss"
    tolerance: float = 0.0
    needs_losses = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "tolerance", real("tolerance", self.tolerance, 0.0))
        one_of("loss", "window", "run")("by", self.by)

    def arrays(self, samples: int) -> dict[str, Array]:
        """Return ``loss``, the last loss of each sample; nothing if samples are sorted by hits."""
        return super().arrays(samples) if self.by == "loss" else {}

    def scores(self, known: Known) -> Array:
        """Return the negative losses, or the hits reversed. Unobserved samples come last."""
        if self.by == "loss":
            losses = known.arrays["loss"]
            return np.where(np.isnan(losses), np.float32(-np.inf), -losses)
        hard = known.counts if self.by == "window" else hit_rate(known)
        top = int(hard.max()) + 1  # so that a sample that was always hit comes before unobserved ones
        dtype = smallest_unsigned(top)
        return np.where(known.visits > 0, np.subtract(top, hard, dtype=dtype), dtype.type(0))


@dataclass(frozen=True)
class LossRanked(LastLoss):
    """Prune at random among low losses, and weight the kept ones up: InfoBatch's rule (Qin et al., ICLR 2024).

    The group to prune from is the samples whose last loss is below the mean of all last losses. Every pruned epoch
    draws exactly as many as the run prunes from it. If ``k`` samples of a group of ``m`` are kept, these get the weight
    ``m / k``, all others 1: so the expected gradient is that of all samples, and the weights of the kept samples add up
    to the number of samples.

    Parameters
    ----------
    ratio : float
        At most this fraction of the group is pruned, so that no weight is above ``1 / (1 - ratio)``. If more must be
        pruned, the samples with the next lowest losses join the group, together with those of equal loss. Once all
        samples are in the group, the fraction may be larger. Strictly between 0 and 1.
    """

    ratio: float = 0.5
    tolerance = 0.0
    needs_losses = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "ratio", real("ratio", self.ratio, 0.0, above=True))
        if self.ratio >= 1:
            raise PrunedataError(f"Expected ratio to be below 1. Got {self.ratio}: some of the group must stay.")

    def scores(self, known: Known) -> Array:
        """Return 1 for the group and 0 for the others, so that samples are drawn from the group."""
        return self._group(known).view(np.uint8)

    def weights(self, keep: Mask, known: Known) -> Array:
        """Return ``m / k`` for the kept samples of the group, 1 for the other kept ones, 0 for pruned ones: float32."""
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
        # Unobserved samples come last, as nothing shows that they are easy.
        losses = np.where(seen, losses, np.float32(np.inf))
        low = losses < losses[seen].mean(dtype=np.float64)
        least = math.ceil(min(known.num_pruned / self.ratio, losses.size))
        if np.count_nonzero(low) < least:
            low = losses <= np.partition(losses, least - 1)[least - 1]
        return np.asarray(low)


@dataclass(frozen=True)
class RunningLoss(MovingAverage):
    """Prune the samples whose losses stay above the means of their batches, by a moving average of the excess.

    Each visit moves a sample's ``excess`` towards its loss minus its batch's mean. DroppingCount counts the visits in
    which a loss was above the mean; this measures by how much, with more weight on recent visits, and so finds labels
    that are wrong at random earlier and with fewer visits. An excess, unlike a loss, stays comparable while its sample
    is pruned and the losses of all others fall.

    Parameters
    ----------
    decay : float
        Weight of all earlier visits beside the newest one; at least 0 and below 1. 0 is the last loss alone.
    """

    array: ClassVar[str] = "excess"

    def measure(self, losses: Losses, means: Losses) -> Losses:
        """Return how far the losses are above the means."""
        excess = np.clip(losses, -LARGEST, LARGEST) - np.clip(means, -LARGEST, LARGEST)
        return np.clip(excess, -LARGEST, LARGEST)


@dataclass(frozen=True)
class BoundedLoss(MovingAverage):
    """Prune the samples with the least likely labels, by a moving average of ``1 - exp(-loss)``.

    For a cross-entropy ``exp(-loss)`` is the probability of the label. So each visit moves a sample's ``doubt`` towards
    1 minus that probability, and no loss counts for more than 1, however high it is. The batch's mean does not matter.
    The doubt of samples falls while they are learned; that of pruned ones stays. Losses must be cross-entropies, or
    others that are never below 0; one below 0 counts as 0.
    ``decay`` is as for :class:`RunningLoss`.
    """

    array: ClassVar[str] = "doubt"

    def measure(self, losses: Losses, means: Losses) -> Losses:
        """Return 1 minus the probabilities of the labels, 0 to 1."""
        return -np.expm1(-np.maximum(losses, 0.0))


MEAN_EXCESS = "mean_excess"
"""Name of the array of mean excesses over all finished epochs, float32; in an open epoch it has sums."""


@dataclass(frozen=True)
class RecentLoss(MovingAverage):
    """Prune the samples with the highest recent losses, by a moving average of the losses themselves.

    ``policy="auto"`` uses it. Late in a run it ranks wrong labels better than the mean of all epochs does: on the
    recorded losses of a deep network with an AUC of 0.945, against 0.918. The average of a sample that is left out
    stays as it was, however far the losses of the others fall.
    ``decay`` is as for :class:`RunningLoss`.
    """

    decay: float = 0.75
    array: ClassVar[str] = "recent"

    def measure(self, losses: Losses, means: Losses) -> Losses:
        """Return the losses themselves."""
        return np.clip(losses, -LARGEST, LARGEST)


@dataclass(frozen=True)
class Random:
    """Prune random samples, drawn again in every pruned epoch: the control that the paper lacks."""

    tolerance = 0.0
    needs_losses = False

    def scores(self, known: Known) -> Array:
        """Return equal scores, so that samples are drawn at random."""
        return np.broadcast_to(np.uint8(0), known.counts.shape)


class High:
    """Counts the visits of each sample with a loss above ``ln(classes)``.

    The array ``high`` has the shape (samples,) and is uint16 in runs of up to 65,535 epochs. It saturates.
    """

    def __init__(self, classes: int, epochs: int) -> None:
        self.limit = math.log(classes)
        self._dtype = np.promote_types(np.uint16, smallest_unsigned(epochs))

    def arrays(self, samples: int) -> dict[str, Array]:
        """Return the array ``high``."""
        return {"high": np.zeros(samples, self._dtype)}

    def update(self, arrays: Arrays, ids: Ids, losses: Losses, means: Losses) -> None:
        """Add the visits with high losses."""
        high, which = arrays["high"], ids[losses > self.limit]
        high[which] = np.minimum(high[which], np.iinfo(high.dtype).max - 1) + 1


BUILT_IN: dict[str, type[Policy]] = {
    kind.__name__: kind
    for kind in (BoundedLoss, DroppingCount, EasyPruning, LossRanked, Random, RecentLoss, RunningLoss)
}


def from_description(described: object) -> Policy:
    """Return the policy that :func:`prunedata.policies.protocol.describe` described.

    Raises :class:`PrunedataError` if it is no policy of the library, or its parameters are invalid.
    """
    name = described.get("name") if isinstance(described, Mapping) else None
    if not isinstance(described, Mapping) or not isinstance(name, str) or name not in BUILT_IN:
        raise PrunedataError(f"Expected the description of one of {', '.join(BUILT_IN)}. Got {shown(described)}.")
    parameters: dict[str, Any] = {key: value for key, value in described.items() if key != "name"}
    try:
        return BUILT_IN[name](**parameters)
    except TypeError as error:  # such as a parameter of another version
        raise PrunedataError(f"Expected the parameters of {name}. Got {shown(parameters)}: {error}.") from error
