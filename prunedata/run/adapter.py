"""The base class of adapters, which are attached to a run: an adapter overrides the methods that it needs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from prunedata.counting.counts import Tally
from prunedata.errors import LossError, SkippedSamples
from prunedata.run.epoch import Epoch
from prunedata.types import Mask


@dataclass
class Delivery:
    """What a loader has delivered of one epoch, by its own report.

    Attributes
    ----------
    epoch : int
        The epoch's number. A report on another epoch than the open one is ignored.
    delivered : int or None
        Samples delivered so far, on all ranks; None if unknown.
    left_out : int
        Kept samples that it will not deliver by the user's own settings, as ``drop_last``.
    given : ndarray of bool, shape (samples,), or None
        For a source that may skip samples: the samples that it gave, or all kept samples until it has ended. Kept
        samples that no loader gives are left out, in addition to ``left_out``. None if the source gives all.
    ended : float or None
        When the loader ended, by ``time.perf_counter``; None before. Training time stops there.
    inner : bool
        True for a stream inside a loader; ignored if the loader reports itself.
    """

    epoch: int
    delivered: int | None = None
    left_out: int = 0
    given: Mask | None = field(default=None, compare=False)
    ended: float | None = None
    inner: bool = False

    def end(self) -> None:
        """Mark the loader as ended."""
        self.ended = perf_counter()


class Adapter:
    """A participant of a run. Every method has a default that does nothing.

    Attributes
    ----------
    key : hashable, optional
        Adapters with the same key, other than None, are one: attaching the second returns the first.
    delivery : Delivery or None
        What was delivered of the epoch that is open. Read when the epoch ends, and whenever the run is saved.
    by_weight : bool
        Whether it can leave samples out by weight, so that its users train on the mean over the samples that count
        (``Epoch.factors``). A run that leaves out by weight refuses other adapters.
    """

    key: Hashable = None
    by_weight: bool = False
    delivery: Delivery | None = None

    @property
    def deliveries(self) -> Sequence[Delivery]:
        """What was delivered of the epoch that is open, by several loaders: :attr:`delivery`, if there is one."""
        return () if self.delivery is None else (self.delivery,)

    def begin_epoch(self, epoch: Epoch) -> None:
        """Publish the mask of an epoch that begins, or continues after the run was resumed."""

    def held_back(self) -> Iterable[tuple[Any, ...]]:
        """Yield all losses that are held back, as those on a device, once: ids, losses, sizes of the batches.

        If they came with logits, also the guesses, as :meth:`prunedata.Pruner.record` takes them.
        """
        return ()

    def forget(self) -> None:
        """Drop all losses that are held back: the run was loaded from a state."""

    def end_epoch(self, epoch: Epoch, tally: Tally) -> None:
        """Check an epoch that is about to end, observed and merged; raise if it is wrong."""

    def epoch_ended(self, record: dict[str, Any]) -> None:
        """React to the end of an epoch, which is in the store by now; `record` is its own in ``Pruner.history``."""


def together(epoch: int, deliveries: Iterable[Delivery]) -> Delivery:
    """Return the deliveries of all loaders in an epoch as one. Without any, ``delivered`` is None."""
    reports = [one for one in deliveries if one.epoch == epoch]
    reports = [one for one in reports if not one.inner] or reports
    # Plain numbers, as they are saved with the run.
    counts = [int(one.delivered) for one in reports if one.delivered is not None]
    masks = [one.given for one in reports if one.given is not None]
    ends = [one.ended for one in reports if one.ended is not None]
    return Delivery(
        epoch,
        delivered=sum(counts) if counts else None,
        left_out=sum(int(one.left_out) for one in reports),
        given=np.logical_or.reduce(masks) if masks and len(masks) == len(reports) else None,
        ended=max(ends) if ends and len(ends) == len(reports) else None,
    )


def check_iterated(epoch: Epoch, tally: Tally, what: str) -> None:
    """Raise for an epoch in which the wrapped object was not iterated, unless the observed losses explain it."""
    told = (
        f"Expected the {what} that wrap() returned to be iterated in epoch {epoch.number}. Got nothing from it: "
        f"is the {what} that was given to wrap() iterated instead?"
    )
    if not tally.observed:
        raise SkippedSamples(told)
    pruned = int(np.count_nonzero(tally.visits[~epoch.keep]))
    if pruned:
        raise LossError(f"{told} {pruned} pruned samples were observed.")
