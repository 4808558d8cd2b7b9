"""WHICH samples are pruned. A policy turns what is known of each sample into a score; the highest are pruned.

The run keeps, for every policy, the counts of Algorithm 1 and each sample's hits and visits of the whole run.
A policy is a small frozen class; adding one touches this file alone.
"""

from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from prunedata.checks import real
from prunedata.errors import PrunedataError

__all__ = ["DroppingCount", "Policy", "Random", "describe"]

Unsigned = npt.NDArray[np.unsignedinteger[Any]]


class Policy(Protocol):
    """What a run asks of a policy."""

    @property
    def tolerance(self) -> float:
        """Algorithm 1's tolerance: how far above its batch's mean a loss must lie to be a hit."""

    @property
    def needs_losses(self) -> bool:
        """Whether an epoch without observed losses is an error."""

    def scores(self, counts: Unsigned, hits: Unsigned, visits: Unsigned) -> npt.NDArray[Any]:
        """Score each sample, shape (samples,); the highest are pruned.

        ``counts`` are the window's, ``hits`` and ``visits`` the whole run's, all of shape (samples,).
        """


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
        if self.rank not in ("window", "run"):
            raise PrunedataError(f"Expected rank 'window' or 'run'. Got {self.rank!r}.")

    def scores(self, counts: Unsigned, hits: Unsigned, visits: Unsigned) -> npt.NDArray[Any]:
        """The counts, or hits over visits in steps of 1/65535, which tells all fractions of up to 255 visits apart."""
        if self.rank == "window":
            return counts
        scaled = hits.astype(np.uint64) * np.uint64(65535)
        return (scaled // np.maximum(visits, 1)).astype(np.uint16)


@dataclass(frozen=True)
class Random:
    """The control that the paper lacks: prune as many samples, chosen at random anew in every pruned epoch."""

    tolerance = 0.0
    needs_losses = False

    def scores(self, counts: Unsigned, hits: Unsigned, visits: Unsigned) -> npt.NDArray[Any]:
        """All alike: the selection's hash decides."""
        return np.broadcast_to(np.uint8(0), counts.shape)


def describe(policy: Policy) -> dict[str, Any]:
    """The policy's name and parameters, as the store records them."""
    if isinstance(policy, type) or not is_dataclass(policy):
        raise PrunedataError(f"Expected a policy such as DroppingCount() or Random(). Got {policy!r}.")
    return {"name": type(policy).__name__, **asdict(policy)}
