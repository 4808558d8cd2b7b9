"""Whether an epoch was seen whole: the samples observed are the samples kept, but for those that may be missing."""

from dataclasses import replace

import numpy as np

from prunedata.errors import LossError, SkippedSamples
from prunedata.run.adapter import Delivery
from prunedata.run.counts import CHUNK, Tally
from prunedata.run.epoch import Epoch
from prunedata.types import Mask

__all__ = ["check_complete", "check_iterated", "is_complete", "missing", "with_left_out"]


def missing(epoch: Epoch, tally: Tally) -> Mask:
    """Which kept samples were not observed, shape (samples,)."""
    return np.asarray(epoch.keep & (tally.visits == 0))


def with_left_out(epoch: Epoch, tally: Tally, delivery: Delivery) -> Delivery:
    """What the loaders say, with ``left_out`` as it follows from what their sources gave."""
    if delivery.given is None:
        return delivery
    more = int(np.count_nonzero(missing(epoch, tally) & ~delivery.given))
    return replace(delivery, left_out=delivery.left_out + more)


def is_complete(epoch: Epoch, tally: Tally, delivery: Delivery, excused: int) -> bool:
    """Whether nothing of an epoch is left to train on."""
    ended = delivery.ended is not None and not tally.observed
    return _missed(epoch, tally) <= delivery.left_out + excused or ended


def check_complete(epoch: Epoch, tally: Tally, delivery: Delivery, excused: int, *, needs_losses: bool) -> None:
    """Raise :class:`SkippedSamples` if kept samples were not observed.

    Parameters
    ----------
    epoch : Epoch
    tally : Tally
        What was observed, on all ranks.
    delivery : Delivery
        What the loaders say. Where the policy needs no losses and none came, what they delivered has to do.
    excused : int
        Kept samples that need not be observed, beside those that the loaders leave out.
    needs_losses : bool
    """
    allowed = delivery.left_out + excused
    remaining = int(np.count_nonzero(epoch.remaining))
    undelivered = 0 if delivery.delivered is None else max(0, remaining - allowed - delivery.delivered)
    missed = _missed(epoch, tally) - allowed if needs_losses or tally.observed else undelivered
    if missed <= 0:
        return
    told = ""
    if delivery.delivered is not None:
        undelivered = min(missed, undelivered)
        unobserved = missed - undelivered
        if undelivered:
            told += f" The loader did not deliver {undelivered} of them: was the loop left early, or its length frozen?"
        if unobserved:
            told += f" {unobserved} of them were delivered, but their losses not observed."
    repeated = tally.observed - int(np.count_nonzero(tally.visits))
    if repeated > 0:
        told += (
            f" {repeated} visits were of samples that had been observed before in this epoch: do several workers, or "
            "ranks, give the same ids?"
        )
    raise SkippedSamples(
        f"Expected all {epoch.kept - allowed} kept samples of epoch {epoch.number} to be observed. "
        f"Got {missed} that were not.{told} Call observe() for every batch of the epoch."
    )


def check_iterated(epoch: Epoch, tally: Tally, what: str) -> None:
    """Raise of an epoch in which what ``prune`` returned was not iterated, if what was observed does not explain it."""
    told = (
        f"Expected the {what} that prune() returned to be iterated in epoch {epoch.number}. Got nothing from it: "
        f"is the {what} that was given to prune() iterated instead?"
    )
    if not tally.observed:
        raise SkippedSamples(told)
    pruned = int(np.count_nonzero(tally.visits[~epoch.keep]))
    if pruned:
        raise LossError(f"{told} {pruned} pruned samples were observed.")


def _missed(epoch: Epoch, tally: Tally) -> int:
    parts = (slice(first, first + CHUNK) for first in range(0, epoch.keep.size, CHUNK))  # no copies of all samples
    return sum(int(np.count_nonzero(epoch.keep[part] & (tally.visits[part] == 0))) for part in parts)
