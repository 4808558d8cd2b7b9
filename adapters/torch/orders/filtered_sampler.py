"""A sampler of the user's own, with the pruned samples left out."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from prunedata.adapters.torch.orders.filtered import FilteredOrder
from prunedata.run.order import cut_batches
from prunedata.types import SomeIds

__all__ = ["FilteredSampler"]


class FilteredSampler(FilteredOrder):
    """The user's order. Batches are cut after the pruned samples are left out, so that they are full."""

    @property
    def repeats(self) -> bool:
        """Whether the sampler gives samples more than once, as far as can be seen."""
        return getattr(self.source, "replacement", False) or len(self.source) > self.pruner.samples

    def share(self, kept: int) -> int:
        """As many as are kept. A sampler that may repeat samples can always fill a batch."""
        once = hasattr(self.source, "__len__") and not self.repeats
        return kept if once else max(kept, self.batch_size)

    def pieces(self) -> Iterator[SomeIds]:
        """Yield what the sampler gives and the epoch keeps."""
        return self.kept(_chunks(self.source, self.batch_size))

    def ids(self) -> Iterator[int]:
        """Yield the ids one by one."""
        for piece in self.watched(cut_batches(self.pieces(), 1)):
            yield from piece.tolist()

    def lists(self) -> Iterator[list[int]]:
        """Yield the ids of each batch."""
        for batch in self.watched(cut_batches(self.pieces(), self.batch_size, drop_last=self.drop_last)):
            yield batch.tolist()

    def ids_of(self, kept: int) -> int:
        """Of a sampler that gives each sample once; of others, at most."""
        given = len(self.source)
        return given if self.repeats else min(given, kept)


def _chunks(source: Iterable[Any], size: int) -> Iterator[list[Any]]:
    items = iter(source)
    while chunk := list(islice(items, size)):
        yield chunk
