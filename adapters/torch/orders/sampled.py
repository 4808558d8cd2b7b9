"""Orders that samplers give, in the main process: what they have in common."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Sampler

from prunedata.adapters.torch.orders.base import Order
from prunedata.adapters.torch.orders.standin import StandIn
from prunedata.adapters.torch.sharing import cut_off, refuse_sharing
from prunedata.run.order import cut_batches
from prunedata.types import SomeIds

__all__ = ["SampledOrder"]


class SampledOrder(Order):
    """Ids in pieces of any length, which samplers give one by one or cut into batches."""

    source: Any = None
    """The user's own sampler or batch sampler that is asked, if one is: ours has its attributes."""

    @abstractmethod
    def pieces(self) -> Iterator[SomeIds]:
        """Yield the ids that are to be delivered, in arrays of shape (n,)."""

    @abstractmethod
    def ids_of(self, kept: int) -> int:
        """How many ids an epoch of ``kept`` samples has."""

    def __len__(self) -> int:
        """How many ids the open epoch has, or else the next one."""
        return self.ids_of(self.kept_next())

    def ids(self) -> Iterator[int]:
        """Yield the ids one by one."""
        for piece in self.pieces():
            yield from piece.tolist()

    def lists(self) -> Iterator[list[int]]:
        """Yield the ids of each batch."""
        for batch in cut_batches(self.pieces(), self.batch_size, drop_last=self.drop_last):
            yield batch.tolist()

    def batches_of(self, kept: int) -> int:
        """As many as the ids make, cut by the loader's batch size."""
        ids = self.ids_of(kept)
        return ids // self.batch_size if self.drop_last else -(-ids // self.batch_size)

    def batches(self) -> int:
        """How many batches the open epoch has, or else the next one."""
        return self.batches_of(self.kept_next())

    def samplers(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """A sampler, and a batch sampler if the loader has one."""
        ids = StandIn(self.__len__, self.walk(self.ids), self.source)
        if loader.batch_sampler is None:
            return {"sampler": ids}
        return {"sampler": ids, "batch_sampler": self.batch_sampler(ids)}

    def batch_sampler(self, ids: Sampler[Any]) -> Sampler[Any]:
        """What gives the lists, with the attributes that a batch sampler of PyTorch's has."""
        own = {"sampler": ids, "batch_size": self.batch_size, "drop_last": self.drop_last}
        return StandIn(self.batches, self.walk(self.lists), own=own)

    def walk(self, each: Callable[[], Iterator[Any]]) -> Callable[[], Iterator[Any]]:
        """What gives the same, and takes note when all was given."""

        def noting() -> Iterator[Any]:
            yield from each()
            self._has_ended = True

        return noting

    def begin_unless_begun(self) -> None:
        """Begin, for who takes the samplers out of the loader and iterates them without it, as accelerate does."""
        self.run.lead()
        epoch = self.pruner.current
        if self._begun is not epoch:
            refuse_sharing(self.world, weighs=self.pruner.leave_out == "weight" or self.pruner.holdout is not None)
            self.begin(epoch)
            if self.run.group_size() > self.world:
                self._came = np.zeros(self.pruner.samples, dtype=np.bool_)
            self.delivery.left_out += cut_off(self.batches_of(epoch.kept)) * self.batch_size
        elif self._has_ended:
            self.run.tell_kept(epoch)
