"""The rule of the paper: Algorithms 1 and 2."""

from dataclasses import dataclass

from prunedata.checks import real
from prunedata.policies.protocol import Known
from prunedata.policies.ranks import check_rank, hit_rate
from prunedata.types import Array

__all__ = ["DroppingCount"]


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
