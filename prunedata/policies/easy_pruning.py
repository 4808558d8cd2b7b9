"""Prune the easiest samples: the mirror of the paper's rule."""

from dataclasses import dataclass

import numpy as np

from prunedata.checks import real
from prunedata.policies.by_hits import check_by, hit_rate
from prunedata.policies.last_loss import LastLoss
from prunedata.policies.protocol import Known
from prunedata.types import Array, smallest_unsigned

__all__ = ["EasyPruning"]


@dataclass(frozen=True)
class EasyPruning(LastLoss):
    """Prune the easiest samples: those with the lowest losses, or with the fewest hits. The mirror of DroppingCount.

    A sample that is pruned is not observed, and stays as easy as it was last seen. So the same samples are pruned
    until an epoch on all samples has seen them again: leave one in every block.

    Parameters
    ----------
    by : {"loss", "window", "run"}
        ``"loss"``: sort by each sample's last loss. ``"window"``, ``"run"``: by its hits, as DroppingCount.
    tolerance : float
        Of a hit, as DroppingCount's.
    """

    by: str = "loss"
    tolerance: float = 0.0
    needs_losses = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "tolerance", real("tolerance", self.tolerance, 0.0))
        check_by(self.by, "loss", "window", "run")

    def arrays(self, samples: int) -> dict[str, Array]:
        """``loss``, the last loss of each sample; none where hits decide."""
        return super().arrays(samples) if self.by == "loss" else {}

    def scores(self, known: Known) -> Array:
        """The losses, or hits, upside down. Samples never seen come last."""
        if self.by == "loss":
            losses = known.arrays["loss"]
            return np.where(np.isnan(losses), np.float32(-np.inf), -losses)
        hard = known.counts if self.by == "window" else hit_rate(known)
        top = int(hard.max()) + 1  # so that a sample seen and always hit comes before those never seen
        dtype = smallest_unsigned(top)
        return np.where(known.visits > 0, np.subtract(top, hard, dtype=dtype), dtype.type(0))
