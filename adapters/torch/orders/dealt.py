"""Our own order, dealt to the ranks of a run: in the place of PyTorch's DistributedSampler."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import DistributedSampler

from prunedata.adapters.torch.orders.sampled import SampledOrder
from prunedata.run.epoch import Epoch
from prunedata.run.order import epoch_order
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["DealtOrder"]


class DealtOrder(SampledOrder):
    """One rank's share of our own order.

    Filter, then pad or drop, then deal: every rank gets as many. The sampler says which rank this is, and whether
    the samples that don't go round are dropped or others come twice.
    """

    resumable = True

    def __init__(self, pruner: Pruner, sampler: DistributedSampler[Any], batch_size: int, drop_last: bool) -> None:
        self.shuffle, self.drop_uneven = sampler.shuffle, sampler.drop_last
        self.world, self.rank = sampler.num_replicas, sampler.rank
        super().__init__(pruner, batch_size, drop_last)  # asks for a share

    def share(self, kept: int) -> int:
        """How many of ``kept`` samples a rank gets."""
        return kept // self.world if self.drop_uneven else -(-kept // self.world)

    def left_out(self, epoch: Epoch) -> int:
        """What is dropped so that all ranks get as many, and of each rank's share the batch that isn't full."""
        each = self.share(epoch.kept)
        tail = each % self.batch_size if self.drop_last else 0
        return max(0, epoch.kept - (each - tail) * self.world)

    def pieces(self) -> Iterator[SomeIds]:
        """Yield what remains of this rank's share."""
        self.begin_unless_begun()
        epoch = self.pruner.current
        ids = np.concatenate(list(epoch_order(epoch.keep, seed=epoch.seed, epoch=epoch.number, shuffle=self.shuffle)))
        dealt = np.resize(ids, self.share(ids.size) * self.world)[self.rank :: self.world]
        # What a resumed epoch has behind it is left out last: each rank knows that of its own share only.
        yield dealt[self.remaining[dealt]]

    def __len__(self) -> int:
        last = self.pruner.schedule.epochs - 1
        return self.share(self.pruner.kept_in(min(self.pruner.next_epoch, last)))
