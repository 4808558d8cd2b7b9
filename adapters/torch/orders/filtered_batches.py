"""A batch sampler of the user's own, with the pruned samples left out of its batches."""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from prunedata.adapters.torch.orders.filtered import FilteredOrder
from prunedata.adapters.torch.orders.standin import StandIn
from prunedata.run.order import cut_batches
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["FilteredBatches"]


class FilteredBatches(FilteredOrder):
    """The user's batches, each smaller by what is pruned of it. Those that are empty are left out."""

    yields = "batch sampler to yield lists of ids"

    def __init__(self, pruner: Pruner, source: Any) -> None:
        super().__init__(pruner, source, 1, False)

    def pieces(self) -> Iterator[SomeIds]:
        """Yield of each batch what the epoch keeps."""
        return self.kept(self.source)

    def ids(self) -> Iterator[int]:
        """Yield the ids one by one."""
        for piece in self.watched(cut_batches(self.pieces(), 1)):
            yield from piece.tolist()

    def lists(self) -> Iterator[list[int]]:
        """Yield the ids of each batch."""
        for batch in self.watched(self.pieces()):
            yield batch.tolist()

    def samplers(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """Also for a batch sampler in the place of the sampler, in a loader that makes no batches."""
        ids = StandIn(self.__len__, self.walk(self.ids), getattr(self.source, "sampler", None))
        batches = StandIn(self.batches, self.walk(self.lists), self.source, {"sampler": ids})
        return {"sampler": batches} if loader.batch_sampler is None else {"sampler": ids, "batch_sampler": batches}

    def ids_of(self, kept: int) -> int:
        """As many as the source has items: a batch sampler in the place of the sampler has batches."""
        return len(self.source)

    def batches_of(self, kept: int) -> int:
        """As many as the batch sampler says; fewer, where some are empty."""
        return len(self.source)
