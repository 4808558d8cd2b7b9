"""Our own order, in the place of PyTorch's random, sequential and distributed ones."""

import math
from collections import deque
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from torch.utils.data import DistributedSampler

from prunedata.adapters.torch.orders.sampled import SampledOrder
from prunedata.errors import PrunedataError
from prunedata.run.epoch import Epoch
from prunedata.run.order import epoch_order
from prunedata.run.pruner import Pruner
from prunedata.run.waiting import SharedBatches
from prunedata.types import SomeIds

Uneven = Literal["weights", "drop", "pad"]


class OwnOrder(SampledOrder):
    """The order that follows from the run's seed and the epoch's number, as ``Epoch.batches`` has it.

    Of several ranks each gets a share: what remains is cut into global batches, and each of them is dealt to the
    ranks, so that all ranks have as many batches. A DistributedSampler says which rank this is; without one, a trainer
    that deals by itself may. ``uneven`` says what happens to a last global batch that isn't full, see :func:`wrap`.
    """

    resumable = delivers_all_kept = gives_once = True

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
        self._last: SomeIds = np.zeros(0, dtype=np.int64)  # the ids of this rank's last batch, padding included
        self._recorded = 0  # how many of them are recorded: those that are no padding
        self._last_global = 0  # samples in the last global batch, if it isn't full and its parts are weighted
        self._share_size = self._dealt = 0
        """Samples of this rank, padding included, and of all ranks together, without it."""
        self._last_comes_twice = False
        super().__init__(pruner, batch_size, drop_last)  # calls share()
        self.run.add_setting(f"{batch_size=}, {drop_last=}, {shuffle=}, ranks={self.world}, uneven={self.uneven}")

    @property
    def place(self) -> tuple[int, int]:
        """Which rank this is, and of how many."""
        sampler = self._distributed
        return self.run.place if sampler is None else (sampler.rank, sampler.num_replicas)

    @property
    def world(self) -> int:
        """Number of ranks that share the epoch."""
        return self.place[1]

    @property
    def uneven(self) -> str:
        """What happens to a last global batch that the ranks cannot share evenly."""
        if self._uneven is not None:
            return self._uneven
        if self._distributed is None or self.run.leader is not None:
            return "pad"  # a trainer takes the mean of each batch
        return "drop" if self._distributed.drop_last else "weights"

    def sharing(self) -> SharedBatches | None:
        """Return how global batches are cut: from the remaining samples; at a saved position, from the whole epoch."""
        rest = self.remaining is not self.pruner.current.keep
        return SharedBatches(self.batch_size * self.world, self.shuffle, rest) if self.world > 1 else None

    def share(self, kept: int) -> int:
        """Return how many of ``kept`` samples this rank gets, padding included."""
        rank, world = self.place
        if self.uneven == "drop":
            return kept // world
        if self.uneven == "pad" or world == 1:
            return -(-kept // world)
        full, rest = divmod(kept, self.batch_size * world)
        tail = 0 if not rest or self.drop_last else max(1, -(-(rest - rank) // world))
        return full * self.batch_size + tail

    def num_ids(self, kept: int) -> int:
        """Return the size of this rank's share."""
        return self.share(kept)

    def check_shares(self, processes: int) -> None:
        """Raise if nothing splits the epoch between processes: PyTorch silently gives every sample to each."""
        if processes > 1 and self.world == 1:
            raise PrunedataError(
                f"Expected a loader that splits each epoch over {processes} processes. Got one that gives all samples "
                "to each of them: build it with sampler=DistributedSampler(dataset), or prepare it with accelerate."
            )

    def left_out(self, epoch: Epoch) -> int:
        """Return how many samples are dropped so that all ranks get as many, and with each rank's partial batch."""
        coming = epoch.kept if self.remaining is epoch.keep else int(np.count_nonzero(self.remaining))
        if self.uneven == "weights" and self.world > 1:
            return coming % (self.batch_size * self.world) if self.drop_last else 0
        each = self.share(coming)
        tail = each % self.batch_size if self.drop_last else 0
        return max(0, coming - (each - tail) * self.world)

    def pieces(self) -> Iterator[SomeIds]:
        """Yield the remaining ids, or this rank's share of them, in arrays of shape (n,)."""
        self.begin_unless_begun()
        epoch = self.pruner.current
        if self.world == 1:
            return epoch_order(self.remaining, seed=epoch.seed, epoch=epoch.number, shuffle=self.shuffle)
        ids = np.concatenate(list(epoch_order(epoch.keep, seed=epoch.seed, epoch=epoch.number, shuffle=self.shuffle)))
        return iter([self._share_of(ids[self.remaining[ids]], ids)])

    def _share_of(self, rest: SomeIds, everything: SomeIds) -> SomeIds:
        """Return this rank's share of the rest, padded by the first samples of the whole order."""
        rank, world = self.place
        own, size = rest[rank::world], self.share(rest.size)
        recorded = min(size, own.size)
        if own.size < size:  # a resumed epoch gets the same padding at its end
            place = (rank + own.size * world - rest.size) % everything.size
            own = np.append(own, everything[place] if self.uneven == "pad" else rest[-1])
        own = own[:size]
        tail = size % self.batch_size or min(size, self.batch_size)
        self._last, self._recorded = own[size - tail :], recorded - (size - tail)
        weighted = self.uneven == "weights" and not self.drop_last
        self._last_global = rest.size % (self.batch_size * world) if weighted else 0
        self._share_size, self._dealt = size, rest.size if weighted else min(rest.size, size * world)
        self._trained_samples = self._trained_by_batch(own, rest, everything)
        padding, before = own[-1:], own[:-1]
        self._last_comes_twice = (
            self.batch_size == 1
            and not self._recorded
            and bool((padding[:, np.newaxis] == before).any() and self.pruner.current.remaining[padding].all())
        )
        return own

    def total_delivered(self, delivered: int) -> int:
        """Return how many samples all ranks have delivered: all, once this rank has delivered its share."""
        return self._dealt if 0 < self._share_size <= delivered else delivered * self.world

    def select(self, ids: SomeIds) -> tuple[slice | SomeIds, float | None]:
        """Leave the padding out of the last batch, and weight it by its part of a global batch that isn't full."""
        last = self._last
        if not last.size or len(ids) != last.size or ids[0] != last[0] or not np.array_equal(ids, last):
            return super().select(ids)
        if self._last_comes_twice:  # two batches have the same ids: it makes no difference which of them is recorded
            self._last_comes_twice = False
            return slice(None), None
        scale = self._recorded * self.world / self._last_global if self._last_global else None
        return slice(self._recorded), scale

    def _trained_by_batch(self, own: SomeIds, rest: SomeIds, everything: SomeIds) -> dict[int, deque[float]]:
        """Return what :meth:`trained_samples` returns for each of this rank's batches, by its first id."""
        epoch, by_first_id = self.pruner.current, dict[int, deque[float]]()
        if self.ids_in_samples or not epoch.zero_weights:
            return by_first_id
        world, global_size = self.world, self.batch_size * self.world
        dealt = rest
        if self.uneven != "weights":  # all ranks have as many samples
            padding = np.arange(max(0, own.size * world - rest.size))
            dealt = np.append(rest, everything[padding % everything.size])[: own.size * world]
        starts = np.arange(0, dealt.size, global_size)
        trained = np.add.reduceat(epoch.trained[dealt], starts, dtype=np.int64) / world
        for number, first in enumerate(own[:: self.batch_size].tolist()):
            by_first_id.setdefault(first, deque()).append(float(trained[number]))
        if self.uneven == "weights" and own.size and not self._recorded:
            by_first_id[int(self._last[0])][-1] = math.inf
        return by_first_id

    def trained_samples(self, ids: SomeIds) -> float:
        """Return the number without an exchange, as all ranks compute the same order."""
        known = self._trained_samples.get(int(ids[0]))
        if known is not None and len(known) == 1:  # otherwise a sample that pads begins a batch of its own, too
            return known[0]
        return super().trained_samples(ids)

    def as_distributed(self) -> DistributedSampler[Any] | None:
        """Return this order as a DistributedSampler, if several ranks share it."""
        return _Distributed(self) if self.world > 1 else None


class _Distributed(DistributedSampler[Any]):
    def __init__(self, order: OwnOrder) -> None:
        self._order, (self.rank, self.num_replicas) = order, order.place

    def __iter__(self) -> Iterator[int]:
        return self._order.ids()

    def __len__(self) -> int:
        return len(self._order)
