"""WHICH samples are pruned. A policy turns what is known of each sample into a score; the highest are pruned.

The run keeps, for every policy, the counts of Algorithm 1 and each sample's hits and visits of the whole run.
A policy is a small frozen dataclass; adding one touches this file alone.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from prunedata.checks import real
from prunedata.errors import PrunedataError

__all__ = ["DroppingCount", "EasyPruning", "Known", "LossRanked", "Policy", "Random", "Watcher", "Weigher", "describe"]

Array = npt.NDArray[Any]
Unsigned = npt.NDArray[np.unsignedinteger[Any]]
Mask = npt.NDArray[np.bool_]
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Known:
    """What a run knows when an epoch is about to be pruned: all finished epochs. Not to be changed.

    Attributes
    ----------
    counts : ndarray of unsigned int, shape (samples,)
        DroppingCount: hits in the current window.
    hits, visits : ndarray of unsigned int, shape (samples,)
        Hits, and times observed, in the whole run.
    arrays : mapping of str to ndarray, shape (samples,)
        The policy's own arrays by name, if it is a :class:`Watcher`; otherwise empty.
    pruned : int
        How many samples will be pruned.
    """

    counts: Unsigned
    hits: Unsigned
    visits: Unsigned
    arrays: Mapping[str, Array]
    pruned: int


class Policy(Protocol):
    """What a run asks of a policy. It may be a :class:`Watcher` and a :class:`Weigher` too."""

    @property
    def tolerance(self) -> float:
        """Algorithm 1's tolerance: how far above its batch's mean a loss must lie to be a hit."""

    @property
    def needs_losses(self) -> bool:
        """Whether an epoch without observed losses is an error."""

    def scores(self, known: Known) -> Array:
        """Score each sample, shape (samples,), an integer or floating dtype without NaN; the highest are pruned."""


@runtime_checkable
class Watcher(Protocol):
    """A policy that keeps arrays of its own, one number a sample. They are saved and restored with the run."""

    def arrays(self, samples: int) -> dict[str, Array]:
        """The arrays as a run begins, by name: shape (samples,), an integer or floating dtype."""

    def update(self, arrays: dict[str, Array], ids: npt.NDArray[np.int64], losses: npt.NDArray[np.float64]) -> None:
        """Take over a block of losses, by changing the arrays in place.

        ``ids`` and ``losses``, of shape (n,), are checked, lie in the order of observation, may name a sample
        several times, and are valid during the call only.
        """


@runtime_checkable
class Weigher(Protocol):
    """A policy that says how much the loss of each sample counts in a pruned epoch."""

    def weights(self, keep: Mask, known: Known) -> Array:
        """The factor of each sample's loss, shape (samples,). ``keep`` is the epoch's; ``known`` is as in scores."""


@dataclass(frozen=True)
class DroppingCount:
    """The paper's rule (Algorithms 1 and 2): prune the samples that were most often above their batch's mean.

    Parameters
    ----------
    tolerance : float
        A loss is a hit if it is above ``mean + tolerance * abs(mean)`` of its batch. At least 0.
    rank : {"window", "run"}
        ``"window"``, the paper: order by the hits of the current window. ``"run"``: order by hits over visits of
        the whole run, which stays sharp just after a window has begun.
    """

    tolerance: float = 0.0
    rank: str = "window"
    needs_losses = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "tolerance", real("tolerance", self.tolerance, 0.0))
        _check_rank(self.rank, "window", "run")

    def scores(self, known: Known) -> Array:
        """The counts, or hits over visits in steps of 1/65535, which tells all fractions of up to 255 visits apart."""
        return known.counts if self.rank == "window" else _hit_rate(known)


@dataclass(frozen=True)
class Random:
    """The control that the paper lacks: prune as many samples, chosen at random anew in every pruned epoch."""

    tolerance = 0.0
    needs_losses = False

    def scores(self, known: Known) -> Array:
        """All alike: the selection's hash decides."""
        return np.broadcast_to(np.uint8(0), known.counts.shape)


class _LastLosses:
    """Keeps the loss that each sample had last: float32, NaN before its first."""

    def arrays(self, samples: int) -> dict[str, Array]:
        """``loss``, the last loss of each sample."""
        return {"loss": np.full(samples, np.nan, dtype=np.float32)}

    def update(self, arrays: dict[str, Array], ids: npt.NDArray[np.int64], losses: npt.NDArray[np.float64]) -> None:
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
        _check_rank(self.rank, "loss", "window", "run")

    def arrays(self, samples: int) -> dict[str, Array]:
        """``loss``, the last loss of each sample; none where hits decide."""
        return super().arrays(samples) if self.rank == "loss" else {}

    def scores(self, known: Known) -> Array:
        """The losses, or hits, upside down. Samples never seen come last."""
        if self.rank == "loss":
            losses = known.arrays["loss"]
            return np.where(np.isnan(losses), np.float32(-np.inf), -losses)
        hard = known.counts if self.rank == "window" else _hit_rate(known)
        return np.where(known.visits > 0, ~hard, hard.dtype.type(0))


def describe(policy: Policy) -> dict[str, Any]:
    """The policy's name and parameters, as the store records them."""
    if isinstance(policy, type) or not is_dataclass(policy):
        raise PrunedataError(f"Expected a policy such as DroppingCount() or Random(). Got {policy!r}.")
    return {"name": type(policy).__name__, **asdict(policy)}


def _hit_rate(known: Known) -> npt.NDArray[np.uint16]:
    scaled = known.hits.astype(np.uint64) * np.uint64(65535)
    return (scaled // np.maximum(known.visits, 1)).astype(np.uint16)


def _check_rank(rank: str, *ranks: str) -> None:
    if rank not in ranks:
        some = ", ".join(map(repr, ranks[:-1]))
        raise PrunedataError(f"Expected rank {some} or {ranks[-1]!r}. Got {rank!r}.")
