"""What a pruned loader asks of the order in which it walks through an epoch."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, DistributedSampler

from prunedata.adapters.torch.orders.standin import two_at_a_time
from prunedata.adapters.torch.run import TorchRun
from prunedata.counting.waiting import Shared
from prunedata.errors import PrunedataError
from prunedata.run.adapter import Delivery
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.types import Mask, SomeIds

__all__ = ["Order"]


class Order(ABC):
    """One way through an epoch's samples. There is a subclass for each case.

    Attributes
    ----------
    resumable : bool
        Whether the same order comes when it is asked for again, so that a position in it has a meaning.
    remaining : ndarray of bool, shape (samples,)
        What is to be delivered of the epoch that was begun.
    delivery : Delivery
        What the run is told of the epoch that was begun.
    whole : bool
        Whether it set out on the whole epoch, so that a position in it says what of the epoch came.
    """

    resumable = False
    gives_all = False
    """Whether each such order gives all that an epoch keeps. Then what two have delivered does not add up."""

    once: bool | None = None
    """Whether the order gives no sample twice, by what it is or as passes over it have shown; None if not known."""

    carries = False
    """Whether the ids travel within the samples: a batch may have fewer than were dealt, in another order."""

    def __init__(self, pruner: Pruner, batch_size: int, drop_last: bool) -> None:
        self.pruner, self.batch_size, self.drop_last = pruner, batch_size, drop_last
        self.remaining = np.zeros(0, dtype=np.bool_)
        self.delivery = Delivery(-1)
        self.whole = True
        self._begun: Epoch | None = None
        self._has_ended = False
        """Whether the samplers have come to their end since."""
        self._counting: dict[int, deque[float]] = {}
        """What :meth:`counting` returns of batches that are known beforehand, by their first ids."""
        self._came: Mask | None = None
        """Where a trainer deals the batches to processes, and repeats some: what this process was dealt."""
        self.run = pruner.attach(TorchRun(pruner))
        if drop_last and self.share(pruner.samples - pruner.prune) < batch_size:
            for epoch in range(pruner.next_epoch, pruner.schedule.epochs):
                self._refuse_empty(epoch, pruner.kept_in(epoch))

    @property
    def world(self) -> int:
        """How many ranks share the epoch."""
        return 1

    def dealt(self) -> DistributedSampler[Any] | None:
        """The same ids from a DistributedSampler, if several ranks share them: trainers look for one."""
        return None

    def begin(self, epoch: Epoch, *, whole: bool = False) -> None:
        """Set out on what remains of an epoch, or on the whole of it."""
        if self.drop_last:
            self._refuse_empty(epoch.number, epoch.kept)
        self._begun, self._came, self._has_ended = epoch, None, False
        self.remaining = epoch.keep if whole else epoch.remaining
        self.whole = whole or np.array_equal(epoch.remaining, epoch.keep)
        self.run.is_shared = self.run.is_shared or self.world > 1  # also by ranks that have no group of PyTorch's
        self.run.share(self.sharing())
        self.delivery = Delivery(epoch.number, left_out=self.left_out(epoch), given=self.promised(epoch))
        self.run.set_out("all that is kept" if self.gives_all else self, self.delivery)
        self.run.positioned = self if self.whole else None

    def sharing(self) -> Shared | None:
        """How the ranks share the batches of what was begun; None if each has batches of its own."""
        return None

    def share(self, kept: int) -> int:
        """The most samples that this loader delivers of so many kept ones."""
        return kept

    def left_out(self, epoch: Epoch) -> int:
        """How many kept samples will not be delivered, as far as that is known when the epoch begins."""
        return 0

    def promised(self, epoch: Epoch) -> Mask | None:
        """What may come of an epoch, where only its end shows what does."""
        return None

    @abstractmethod
    def samplers(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """What stands in the place of the loader's own sampler and batch sampler, by the attribute's name."""

    @abstractmethod
    def batches_of(self, kept: int) -> int | None:
        """How many batches an epoch of ``kept`` samples has; None if nobody can know."""

    def batches(self) -> int | None:
        """How many batches the open epoch has, or else the next one; None if nobody can know."""
        return self.batches_of(self.kept_next())

    def kept_next(self) -> int:
        """How many samples the open epoch keeps, or else the next one, or else the last."""
        return self.pruner.kept_in(min(self.pruner.next_epoch, self.pruner.schedule.epochs - 1))

    def overall(self, delivered: int) -> int:
        """How many samples all ranks have delivered when this one has delivered so many."""
        return delivered * self.world

    def part(self, ids: SomeIds) -> tuple[slice | SomeIds, float | None]:
        """Which of a batch's samples are recorded, by their places; and what to multiply the mean of its losses by.

        None for the latter leaves it.
        """
        came = self._came
        if came is None:
            return slice(None), None
        new = np.zeros(len(ids), np.bool_)
        new[np.unique(ids, return_index=True)[1]] = True
        new &= ~came[ids]
        came[ids] = True
        return np.flatnonzero(new) if self.once else slice(None), None

    def counting(self, ids: SomeIds) -> float:
        """How many of a batch's samples count, where some are left out by weight: of several ranks that share its
        global batch, the average of what they have. Infinity for a batch that stands in for none.

        Here the ranks tell each other, before the batch or now. An order that deals to them itself knows it.
        """  # noqa: D205 (one sentence)
        told = self._counting.get(int(ids[0]))
        if told:
            return told.popleft()
        own, processes = self.pruner.current.counting(np.asarray(ids)), self.run.group_size()
        return own if processes == 1 else sum(self.run.of_all(own)) / processes

    def steps(self, batches: Iterator[tuple[SomeIds, Any]]) -> Iterator[tuple[SomeIds, Any]]:
        """Yield this rank's batches, with their ids, as many as every other rank yields.

        Where each rank has a sampler of its own and some samples count nothing, the ranks tell each other before each
        step how many of their samples count.
        """
        if self.run.group_size() == 1 or self.world > 1 or not self.pruner.current.zero_weights:
            yield from batches
            return
        self._counting = {}
        while True:
            ids, batch = next(batches, (None, None))
            told = self.run.of_all(-1 if ids is None else self.pruner.current.counting(ids))
            if max(told) < 0:
                return
            if ids is None or min(told) < 0:
                raise PrunedataError(
                    f"Expected every rank to have as many batches in epoch {self.delivery.epoch}, as they share a "
                    f"mean over what counts. Got none left on rank {told.index(-1)}, and more on another: let a "
                    "DistributedSampler deal the samples, or let each rank's sampler give as many batches."
                )
            self._counting.setdefault(int(ids[0]), deque()).append(sum(told) / len(told))
            yield ids, batch

    def check_shares(self, processes: int) -> None:  # noqa: B027 (most have nothing to say)
        """Raise if each of several processes would be given every sample."""

    def deliver(self, ids: SomeIds) -> None:  # noqa: B027 (most have nothing to say)
        """Look at a batch before it is delivered; raise if it cannot be right."""

    def check_newest(self, delivery: Delivery) -> None:
        """Raise in an iterator that is asked for another batch after a newer one has begun: both give every sample."""
        if self.delivery is not delivery:
            raise two_at_a_time()

    def finish(self, delivered: int) -> None:  # noqa: B027 (most have nothing to say)
        """Tell what is known only when the loader has come to its end, after so many samples."""

    def _refuse_empty(self, epoch: int, kept: int) -> None:
        """Raise if ``drop_last`` leaves nothing of an epoch: it would end in an instant, without a word."""
        if self.share(kept) < self.batch_size:
            each = f", {kept // self.world} for each of {self.world} ranks," if self.world > 1 else ""
            raise PrunedataError(
                f"Expected at least one batch of {self.batch_size} samples in each epoch, as the loader has drop_last. "
                f"Got {kept} samples{each} in epoch {epoch}, which would train on nothing: use drop_last=False, "
                "smaller batches, or prune less."
            )
