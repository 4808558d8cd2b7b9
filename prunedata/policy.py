"""WHICH samples are pruned. A policy turns what is known of each sample into a score; the highest are pruned.

The run keeps, for every policy, the counts of Algorithm 1 and each sample's hits and visits of the whole run.
A policy is a small frozen dataclass in a file of its own or beside its kin; adding one touches no other.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from prunedata.checks import real
from prunedata.errors import PrunedataError

__all__ = ["DroppingCount", "Known", "Policy", "Random", "Watcher", "Weigher", "check_rank", "describe", "hit_rate"]

Array = npt.NDArray[Any]
Unsigned = npt.NDArray[np.unsignedinteger[Any]]
Mask = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int64]
Losses = npt.NDArray[np.float64]


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

    def update(self, arrays: dict[str, Array], ids: Ids, losses: Losses, means: Losses) -> None:
        """Take over a block of losses, by changing the arrays in place.

        ``ids``, ``losses``, and ``means``, the mean loss of each one's batch, all of shape (n,), are checked, lie in
        the order of observation, may name a sample several times, and are valid during the call only.
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
        check_rank(self.rank, "window", "run")

    def scores(self, known: Known) -> Array:
        """The counts, or hits over visits in steps of 1/65535, which tells all fractions of up to 255 visits apart."""
        return known.counts if self.rank == "window" else hit_rate(known)


@dataclass(frozen=True)
class Random:
    """The control that the paper lacks: prune as many samples, chosen at random anew in every pruned epoch."""

    tolerance = 0.0
    needs_losses = False

    def scores(self, known: Known) -> Array:
        """All alike: the selection's hash decides."""
        return np.broadcast_to(np.uint8(0), known.counts.shape)


def describe(policy: Policy) -> dict[str, Any]:
    """The policy's name and parameters, as the store records them."""
    if isinstance(policy, type) or not is_dataclass(policy):
        raise PrunedataError(f"Expected a policy such as DroppingCount() or Random(). Got {policy!r}.")
    return {"name": type(policy).__name__, **asdict(policy)}


def hit_rate(known: Known) -> npt.NDArray[np.uint16]:
    """Hits over visits of the whole run in steps of 1/65535, shape (samples,); 0 for samples never seen."""
    scaled = known.hits.astype(np.uint64) * np.uint64(65535)
    return (scaled // np.maximum(known.visits, 1)).astype(np.uint16)


def check_rank(rank: str, *ranks: str) -> None:
    """Raise :class:`PrunedataError` if `rank` is none of `ranks`."""
    if rank not in ranks:
        some = ", ".join(map(repr, ranks[:-1]))
        raise PrunedataError(f"Expected rank {some} or {ranks[-1]!r}. Got {rank!r}.")
