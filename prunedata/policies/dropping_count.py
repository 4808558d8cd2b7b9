"""The rule of the paper: Algorithms 1 and 2."""

from dataclasses import dataclass

from prunedata.checks import real
from prunedata.policies.by_hits import check_by, hit_rate
from prunedata.policies.protocol import Known
from prunedata.types import Array

__all__ = ["DroppingCount"]


@dataclass(frozen=True)
class DroppingCount:
    """The paper's rule (Algorithms 1 and 2): prune the samples that were most often above their batch's mean.

    Parameters
    ----------
    tolerance : float
        A loss is a hit if it is above ``mean + tolerance * abs(mean)`` of its batch. At least 0.
    by : {"window", "run"}
        ``"window"``, the paper: sort by the hits of the current window. ``"run"``: sort by hits over visits of
        the whole run, which stays sharp just after a window has begun.
    """

    tolerance: float = 0.0
    by: str = "window"
    needs_losses = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "tolerance", real("tolerance", self.tolerance, 0.0))
        check_by(self.by, "window", "run")

    def scores(self, known: Known) -> Array:
        """The counts, or hits over visits in steps of 1/65535, which tells all fractions of up to 255 visits apart."""
        return known.counts if self.by == "window" else hit_rate(known)
