"""A sampler of the user's own, with the pruned samples left out."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from torch.utils.data import DistributedSampler, RandomSampler, SequentialSampler, SubsetRandomSampler

from prunedata.adapters.torch.orders.filtered import FilteredOrder
from prunedata.run.order import cut_batches
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["FilteredSampler"]


class FilteredSampler(FilteredOrder):
    """The user's order. Batches are cut after the pruned samples are left out, so that they are full."""

    def __init__(self, pruner: Pruner, source: Any, batch_size: int, drop_last: bool) -> None:
        self.once = _gives_once(source)
        super().__init__(pruner, source, batch_size, drop_last)

    def share(self, kept: int) -> int:
        """As many as are kept. A sampler that is seen to repeat samples can always fill a batch."""
        source = self.source
        repeats = getattr(source, "replacement", False) or self.once is False
        once = hasattr(source, "__len__") and not repeats and len(source) <= self.pruner.samples
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
        """At most as many as the sampler gives; and as are kept, if it is known to give each sample once."""
        given = len(self.source)
        return min(given, kept) if self.once else given


def _chunks(source: Iterable[Any], size: int) -> Iterator[list[Any]]:
    items = iter(source)
    while chunk := list(islice(items, size)):
        yield chunk


def _gives_once(source: Any) -> bool | None:
    """Whether a sampler gives no sample twice; None if it has to be watched: one of a user's own class may.

    One that knows it says so by an attribute ``gives_once``, as adapters set it for samplers that they know.
    """
    if isinstance(source, Sequence):
        return len(set(source)) == len(source)
    if type(source) is SubsetRandomSampler:
        return len(set(source.indices)) == len(source)
    if type(source) is RandomSampler:
        return not source.replacement and len(source) <= len(source.data_source)
    return True if type(source) in (SequentialSampler, DistributedSampler) else getattr(source, "gives_once", None)
