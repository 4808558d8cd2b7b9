"""Our own order, in the place of PyTorch's random, sequential and distributed ones."""

import math
from collections import deque
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from torch.utils.data import DistributedSampler

from prunedata.adapters.torch.orders.sampled import SampledOrder
from prunedata.counting.waiting import SharedBatches
from prunedata.errors import PrunedataError
from prunedata.run.epoch import Epoch
from prunedata.run.order import epoch_order
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["OwnOrder", "Uneven"]

Uneven = Literal["weights", "drop", "pad"]


class OwnOrder(SampledOrder):
    """The order that follows from the run's seed and the epoch's number, as ``Epoch.batches`` has it.

    Of several ranks each gets a share: filter, cut into global batches, and deal each of them to the ranks. All ranks
    have as many batches. A DistributedSampler says which rank this is; without one a trainer that deals by itself
    may. What becomes of a last global batch that isn't full, ``uneven`` says, see :func:`wrap`.
    """

    resumable = gives_all = once = True

    def __init__(
        self,
        pruner: Pruner,
        batch_size: int,
        drop_last: bool,
        *,
        shuffle: bool,
        distributed: DistributedSampler[Any] | None = None,
        uneven: Uneven | None = None,
    ) -> None:
        self.shuffle, self._distributed, self._uneven = shuffle, distributed, uneven
        self.source = distributed  # whose set_epoch loops call
        self._last: SomeIds = np.zeros(0, dtype=np.int64)
        self._counted = self._total = self._own = self._dealt = 0
        self._comes_again = False
        super().__init__(pruner, batch_size, drop_last)  # asks for a share
        self.run.cut_by(f"{batch_size=}, {drop_last=}, {shuffle=}, ranks={self.world}, uneven={self.uneven}")

    @property
    def place(self) -> tuple[int, int]:
        """Which rank this is, and of how many."""
        given = self._distributed
        return self.run.place if given is None else (given.rank, given.num_replicas)

    @property
    def world(self) -> int:
        """How many ranks share the epoch."""
        return self.place[1]

    @property
    def uneven(self) -> str:
        """What becomes of a last global batch that the ranks cannot share evenly."""
        if self._uneven is not None:
            return self._uneven
        if self._distributed is None or self.run.leader is not None:
            return "pad"  # a trainer takes the mean of each batch
        return "drop" if self._distributed.drop_last else "weights"

    def sharing(self) -> SharedBatches | None:
        """Each global batch is dealt to the ranks; cut from what remains, unless at a position in the whole epoch."""
        rest = self.remaining is not self.pruner.current.keep
        return SharedBatches(self.batch_size * self.world, self.shuffle, rest) if self.world > 1 else None

    def share(self, kept: int) -> int:
        """How many of ``kept`` samples this rank gets, a sample that stands in for none included."""
        rank, world = self.place
        if self.uneven == "drop":
            return kept // world
        if self.uneven == "pad" or world == 1:
            return -(-kept // world)
        full, rest = divmod(kept, self.batch_size * world)
        tail = 0 if not rest or self.drop_last else max(1, -(-(rest - rank) // world))
        return full * self.batch_size + tail

    def check_shares(self, processes: int) -> None:
        """Raise if nobody splits the epoch: PyTorch gives every sample to each rank then, without a word."""
        if processes > 1 and self.world == 1:
            raise PrunedataError(
                f"Expected a loader that splits each epoch over {processes} processes. Got one that gives all samples "
                "to each of them: build it with sampler=DistributedSampler(dataset), or let accelerate prepare it."
            )

    def left_out(self, epoch: Epoch) -> int:
        """What is dropped so that all ranks get as many, and of each rank's share the batch that isn't full."""
        coming = epoch.kept if self.remaining is epoch.keep else int(np.count_nonzero(self.remaining))
        if self.uneven == "weights" and self.world > 1:
            return coming % (self.batch_size * self.world) if self.drop_last else 0
        each = self.share(coming)
        tail = each % self.batch_size if self.drop_last else 0
        return max(0, coming - (each - tail) * self.world)

    def pieces(self) -> Iterator[SomeIds]:
        """Yield what remains of the epoch, or of this rank's share of it."""
        self.begin_unless_begun()
        epoch, world = self.pruner.current, self.world
        if world == 1:
            return epoch_order(self.remaining, seed=epoch.seed, epoch=epoch.number, shuffle=self.shuffle)
        ids = np.concatenate(list(epoch_order(epoch.keep, seed=epoch.seed, epoch=epoch.number, shuffle=self.shuffle)))
        return iter([self._share_of(ids[self.remaining[ids]], ids)])

    def _share_of(self, rest: SomeIds, everything: SomeIds) -> SomeIds:
        """Return this rank's share of what remains, padded by the first samples of the whole order."""
        rank, world = self.place
        own, size = rest[rank::world], self.share(rest.size)
        counted = min(size, own.size)
        if own.size < size:  # what pads the end of an epoch is what pads it when it is resumed
            place = (rank + own.size * world - rest.size) % everything.size
            own = np.append(own, everything[place] if self.uneven == "pad" else rest[-1])
        own = own[:size]
        tail = size % self.batch_size or min(size, self.batch_size)
        self._last, self._counted = own[size - tail :], counted - (size - tail)
        weighed = self.uneven == "weights" and not self.drop_last
        self._total = rest.size % (self.batch_size * world) if weighed else 0
        self._own, self._dealt = size, rest.size if weighed else min(rest.size, size * world)
        self._counting = self._counting_of(own, rest, everything)
        self._comes_again = self.batch_size == 1 and not self._counted and self._has_waiting(own[-1:], own[:-1])
        return own

    def _has_waiting(self, padding: SomeIds, before: SomeIds) -> bool:
        """Whether what pads a share is in it already, and not yet observed."""
        return bool((padding[:, np.newaxis] == before).any() and self.pruner.current.remaining[padding].all())

    def overall(self, delivered: int) -> int:
        """How many samples all ranks have delivered when this one has delivered so many: as many each, or all."""
        return self._dealt if 0 < self._own <= delivered else delivered * self.world

    def part(self, ids: SomeIds) -> tuple[slice | SomeIds, float | None]:
        """Of the last batch, leave out what pads it; and weigh it by its part of a global batch that isn't full."""
        last = self._last
        if not last.size or len(ids) != last.size or ids[0] != last[0] or not np.array_equal(ids, last):
            return super().part(ids)
        if self._comes_again:  # one of two batches that look the same: which of them counts makes no difference
            self._comes_again = False
            return slice(None), None
        return slice(self._counted), self._counted * self.world / self._total if self._total else None

    def _counting_of(self, own: SomeIds, rest: SomeIds, everything: SomeIds) -> dict[int, deque[float]]:
        """Of each of this rank's batches, by its first id: how many samples of its global batch count for a rank."""
        epoch, found = self.pruner.current, dict[int, deque[float]]()
        if self.carries or not epoch.zero_weights:
            return found
        world, each = self.world, self.batch_size * self.world
        dealt = rest
        if self.uneven != "weights":  # all ranks have as many samples
            padding = np.arange(max(0, own.size * world - rest.size))
            dealt = np.append(rest, everything[padding % everything.size])[: own.size * world]
        sums = np.add.reduceat(epoch.trained[dealt], np.arange(0, dealt.size, each), dtype=np.int64) / world
        for number, first in enumerate(own[:: self.batch_size].tolist()):
            found.setdefault(first, deque()).append(float(sums[number]))
        if self.uneven == "weights" and own.size and not self._counted:
            found[int(self._last[0])][-1] = math.inf
        return found

    def counting(self, ids: SomeIds) -> float:
        """As all ranks know it, who have the same order."""
        told = self._counting.get(int(ids[0]))
        if told is not None and len(told) == 1:  # else a sample that pads begins a batch of its own, too
            return told[0]
        return super().counting(ids)

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
