"""What several processes say of an epoch that each has seen a part of, and whether they have seen it whole together."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from prunedata.run.adapter import Delivery
from prunedata.run.completeness import missing
from prunedata.run.counts import Tally
from prunedata.run.epoch import Epoch

__all__ = ["Met", "said_by_all", "unseen"]


class Met(NamedTuple):
    """What a process tells the others at the end of an epoch, and the sums over all of them."""

    excused: float
    """Kept samples that need not be observed."""
    unseen: float
    """Those that loaders gave and that the process has not observed, see :func:`unseen`."""
    delivered: float
    """Samples that its loaders delivered."""
    loss_sum: float
    visits: float

    @property
    def mean_loss(self) -> float | None:
        """Of all visits."""
        return self.loss_sum / self.visits if self.visits else None


def unseen(epoch: Epoch, tally: Tally, said: Delivery, *, needs_losses: bool) -> int:
    """How many samples a process was given and has not observed; 0 where it follows from ``said.left_out``."""
    if said.given is None:
        return 0
    if needs_losses or tally.observed:
        return int(np.count_nonzero(said.given & missing(epoch, tally)))
    return max(0, int(np.count_nonzero(said.given & epoch.keep)) - (said.delivered or 0))


def said_by_all(epoch: Epoch, tally: Tally, said: Delivery, met: Met, merge: Callable[[Tally], None]) -> Delivery:
    """What the loaders of all processes say of an epoch.

    Parameters
    ----------
    epoch : Epoch
    tally : Tally
        What was observed, by all processes.
    said : Delivery
        By the loaders of this process.
    met : Met
        The sums over all processes.
    merge : callable
        Merges a tally over all processes, in place.
    """
    if said.given is None and not met.unseen:
        return said
    absent = missing(epoch, tally)
    left_out = said.left_out + int(np.count_nonzero(absent))
    if met.unseen <= met.excused:  # no process lacks a sample: what is absent none was given
        return replace(said, left_out=left_out)
    # What one process lacks another may have seen, or lack too. So they tell each other which samples that is.
    lacking = Tally(absent.size)
    if said.given is not None:
        ids = np.flatnonzero(absent & said.given)
        lacking.add(ids, np.zeros(ids.size, dtype=np.bool_))
    merge(lacking)
    delivered = None if said.delivered is None else int(met.delivered)
    return replace(said, left_out=left_out - int(np.count_nonzero(lacking.visits)), delivered=delivered)
