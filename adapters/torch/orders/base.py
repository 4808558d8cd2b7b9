"""The base class of the orders in which a pruned loader delivers an epoch."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, DistributedSampler

from prunedata.adapters.torch.run import TorchRun
from prunedata.errors import PrunedataError
from prunedata.run.adapter import Delivery
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.run.waiting import Shared
from prunedata.types import Mask, SomeIds


class Order(ABC):
    """The order in which a loader delivers the samples of an epoch. There is a subclass for each kind of loader."""

    resumable = False
    """Whether the same epoch gets the same order every time, so that a position within it can be resumed."""
    delivers_all_kept = False
    """Whether the order delivers every sample that an epoch keeps. The deliveries of two such orders don't add up."""
    gives_once: bool | None = None
    """Whether the order gives no sample twice, by its kind or as a pass over it has shown; None if not known."""
    with_ids = False
    """Whether the loader delivers the ids beside each batch."""
    ids_in_samples = False
    """Whether each sample carries its id (``id_key``): then a batch may lack samples, or have them in another order."""

    def __init__(self, pruner: Pruner, batch_size: int, drop_last: bool) -> None:
        self.pruner, self.batch_size, self.drop_last = pruner, batch_size, drop_last
        self.remaining = np.zeros(0, dtype=np.bool_)
        """The samples of the open epoch that this order delivers, shape (samples,)."""
        self.delivery = Delivery(-1)
        self.whole = True
        """Whether this order began with the whole epoch, so that its position tells what was delivered."""
        self._begun: Epoch | None = None
        self._exhausted = False  # whether the samplers have given all that they have for this epoch
        self._trained_samples: dict[int, deque[float]] = {}
        """What :meth:`trained_samples` returns for batches that are known beforehand, by their first ids."""
        self._received: Mask | None = None
        """If a trainer deals the batches to processes, and repeats some: the samples that this process has got."""
        self.run = pruner.attach(TorchRun(pruner))
        if drop_last and self.share(pruner.samples - pruner.prune) < batch_size:
            for epoch in range(pruner.next_epoch, pruner.schedule.epochs):
                self._refuse_empty(epoch, pruner.kept_in(epoch))

    @property
    def world(self) -> int:
        """Number of ranks that share the epoch."""
        return 1

    def as_distributed(self) -> DistributedSampler[Any] | None:
        """Return this order as a DistributedSampler, which trainers look for, if several ranks share it."""
        return None

    def begin(self, epoch: Epoch, *, whole: bool = False) -> None:
        """Start to deliver what remains of an epoch, or with ``whole`` all that it keeps."""
        if self.drop_last:
            self._refuse_empty(epoch.number, epoch.kept)
        self._begun, self._received, self._exhausted = epoch, None, False
        self.remaining = epoch.keep if whole else epoch.remaining
        self.whole = whole or np.array_equal(epoch.remaining, epoch.keep)
        self.run.is_shared = self.run.is_shared or self.world > 1  # also by ranks that have no group of PyTorch's
        self.run.share(self.sharing())
        self.delivery = Delivery(epoch.number, left_out=self.left_out(epoch), given=self.may_deliver(epoch))
        self.run.add_delivery("all that is kept" if self.delivers_all_kept else self, self.delivery)
        self.run.positioned_order = self if self.whole else None

    def sharing(self) -> Shared | None:
        """Return how the ranks share the batches of the open epoch; None if each has batches of its own."""
        return None

    def share(self, kept: int) -> int:
        """Return the most samples that this loader delivers of ``kept`` samples."""
        return kept

    def left_out(self, epoch: Epoch) -> int:
        """Return how many kept samples will not be delivered, as far as that is known when the epoch begins."""
        return 0

    def may_deliver(self, epoch: Epoch) -> Mask | None:
        """Return which samples this order may deliver, if only the end of the epoch shows which it does."""
        return None

    @abstractmethod
    def samplers(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """Return what replaces the loader's sampler and batch sampler, by the names of these attributes."""

    @abstractmethod
    def num_batches(self, kept: int) -> int | None:
        """Return how many batches an epoch of ``kept`` samples has; None if that cannot be known."""

    def next_kept(self) -> int:
        """Return how many samples the open epoch keeps, or else the next one, or else the last."""
        return self.pruner.kept_in(min(self.pruner.next_epoch, self.pruner.schedule.epochs - 1))

    def total_delivered(self, delivered: int) -> int:
        """Return how many samples all ranks have delivered when this one has delivered ``delivered``."""
        return delivered * self.world

    def select(self, ids: SomeIds) -> tuple[slice | SomeIds, float | None]:
        """Return which samples of a batch to record, by their places in it, and the factor for its mean loss.

        The factor is None where the mean stays as it is.
        """
        received = self._received
        if received is None:
            return slice(None), None
        new = np.zeros(len(ids), np.bool_)
        new[np.unique(ids, return_index=True)[1]] = True
        new &= ~received[ids]
        received[ids] = True
        return np.flatnonzero(new) if self.gives_once else slice(None), None

    def trained_samples(self, ids: SomeIds) -> float:
        """Return how many samples of a batch are trained on, where others have the weight 0.

        Ranks that share a global batch all get the average over the ranks. It is infinity for a placeholder batch.
        Here the ranks exchange their numbers, in :meth:`steps` or now; an order that deals to them itself knows them.
        """
        known = self._trained_samples.get(int(ids[0]))
        if known:
            return known.popleft()
        own, processes = self.pruner.current.counting(np.asarray(ids)), self.run.group_size()
        return own if processes == 1 else sum(self.run.gather(own)) / processes

    def steps(self, batches: Iterator[tuple[SomeIds, Any]]) -> Iterator[tuple[SomeIds, Any]]:
        """Yield this rank's batches, with their ids, as many as every other rank yields.

        Where each rank has a sampler of its own and some samples have the weight 0, the ranks exchange before each
        step how many of their samples are trained on.
        """
        if self.run.group_size() == 1 or self.world > 1 or not self.pruner.current.zero_weights:
            yield from batches
            return
        self._trained_samples = {}
        while True:
            ids, batch = next(batches, (None, None))
            trained = self.run.gather(-1 if ids is None else self.pruner.current.counting(ids))
            if max(trained) < 0:
                return
            if ids is None or min(trained) < 0:
                raise PrunedataError(
                    f"Expected every rank to have as many batches in epoch {self.delivery.epoch}, as the ranks share "
                    f"the mean over the trained samples. Got no batch on rank {trained.index(-1)}, and one on another "
                    "rank: let a DistributedSampler deal the samples, or let each rank's sampler give as many batches."
                )
            self._trained_samples.setdefault(int(ids[0]), deque()).append(sum(trained) / len(trained))
            yield ids, batch

    def check_shares(self, processes: int) -> None:  # noqa: B027 (most have nothing to check)
        """Raise if each of several processes would get every sample."""

    def check_batch(self, ids: SomeIds) -> None:  # noqa: B027 (most have nothing to check)
        """Raise if a batch cannot be right, before it is delivered."""

    def check_newest(self, delivery: Delivery) -> None:
        """Raise if a newer iterator over the loader has begun, as both would deliver every sample."""
        if self.delivery is not delivery:
            raise two_iterators_error()

    def finish(self, delivered: int) -> None:  # noqa: B027 (most have nothing to add)
        """Complete the report to the run, when the loader has delivered its last batch."""

    def _refuse_empty(self, epoch: int, kept: int) -> None:
        """Raise if ``drop_last`` leaves no batch: the epoch would be empty and end silently."""
        if self.share(kept) < self.batch_size:
            each = f", {kept // self.world} for each of {self.world} ranks," if self.world > 1 else ""
            raise PrunedataError(
                f"Expected at least one batch of {self.batch_size} samples in each epoch, as the loader has drop_last. "
                f"Got {kept} samples{each} in epoch {epoch}, which would train on nothing: use drop_last=False, "
                "smaller batches, or prune less."
            )


def two_iterators_error() -> PrunedataError:
    """Return the error for the older of two iterators over one loader, both of which deliver every sample."""
    return PrunedataError(
        "Expected one iterator at a time over a pruned loader. A newer iterator has begun, and the older one was asked "
        "for another batch, as in zip(loader, loader): every sample would be observed twice. Take all batches from one "
        "iterator."
    )
