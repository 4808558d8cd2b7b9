"""Our own order, in the place of PyTorch's random, sequential and distributed ones."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import DistributedSampler

from prunedata.adapters.torch.orders.sampled import SampledOrder
from prunedata.errors import PrunedataError
from prunedata.run.epoch import Epoch
from prunedata.run.order import epoch_order
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["OwnOrder"]


class OwnOrder(SampledOrder):
    """The order that follows from the run's seed and the epoch's number, as ``Epoch.batches`` has it.

    Of several ranks each gets a share: filter, then pad or drop, then deal, so that every rank gets as many. A
    DistributedSampler says which rank this is, and whether the samples that don't go round are dropped or others come
    twice; without one a trainer that deals by itself may say which rank it is.
    """

    resumable = True

    def __init__(
        self,
        pruner: Pruner,
        batch_size: int,
        drop_last: bool,
        *,
        shuffle: bool,
        distributed: DistributedSampler[Any] | None = None,
    ) -> None:
        self.shuffle, self._distributed = shuffle, distributed
        super().__init__(pruner, batch_size, drop_last)  # asks for a share

    @property
    def place(self) -> tuple[int, int]:
        """Which rank this is, and of how many."""
        given = self._distributed
        return self.run.place if given is None else (given.rank, given.num_replicas)

    @property
    def world(self) -> int:
        """How many ranks share the epoch."""
        return self.place[1]

    def share(self, kept: int) -> int:
        """How many of ``kept`` samples a rank gets."""
        drops = self._distributed is not None and self._distributed.drop_last
        return kept // self.world if drops else -(-kept // self.world)

    def check_shares(self, processes: int) -> None:
        """Raise if nobody splits the epoch: PyTorch gives every sample to each rank then, without a word."""
        if processes > 1 and self.world == 1:
            raise PrunedataError(
                f"Expected a loader that splits each epoch over {processes} processes. Got one that gives all samples "
                "to each of them: build it with sampler=DistributedSampler(dataset), or let accelerate prepare it."
            )

    def left_out(self, epoch: Epoch) -> int:
        """What is dropped so that all ranks get as many, and of each rank's share the batch that isn't full."""
        each = self.share(epoch.kept)
        tail = each % self.batch_size if self.drop_last else 0
        return max(0, epoch.kept - (each - tail) * self.world)

    def pieces(self) -> Iterator[SomeIds]:
        """Yield what remains of the epoch, or of this rank's share of it."""
        self.begin_unless_begun()
        epoch, (rank, world) = self.pruner.current, self.place
        if world == 1:
            return epoch_order(self.remaining, seed=epoch.seed, epoch=epoch.number, shuffle=self.shuffle)
        ids = np.concatenate(list(epoch_order(epoch.keep, seed=epoch.seed, epoch=epoch.number, shuffle=self.shuffle)))
        rest = ids[self.remaining[ids]]
        dealt = self.share(rest.size) * world
        # What pads the end of an epoch is what pads it when it is resumed: the first of the whole order.
        return iter([np.append(rest, np.resize(ids, max(0, dealt - rest.size)))[:dealt][rank::world]])

    def ids_of(self, kept: int) -> int:
        """As many as this rank's share."""
        return self.share(kept)

    def dealt(self) -> DistributedSampler[Any] | None:
        """The same ids from a DistributedSampler."""
        return _Dealt(self) if self.world > 1 else None


class _Dealt(DistributedSampler[Any]):
    def __init__(self, order: OwnOrder) -> None:
        self._order, (self.rank, self.num_replicas) = order, order.place

    def __iter__(self) -> Iterator[int]:
        return self._order.ids()

    def __len__(self) -> int:
        return len(self._order)
