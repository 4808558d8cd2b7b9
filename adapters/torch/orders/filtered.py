"""The order of a sampler or batch sampler of the user's own, without the samples that the epoch leaves out."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, SequentialSampler, SubsetRandomSampler

from prunedata.adapters.torch.orders.sampled import SampledOrder, StandIn
from prunedata.errors import PrunedataError
from prunedata.run.epoch import Epoch
from prunedata.run.order import cut_batches
from prunedata.run.pruner import Pruner
from prunedata.types import Mask, SomeIds


class FilteredOrder(SampledOrder):
    """The ids that ``source`` gives, in its order, without those that the epoch leaves out.

    Which samples it gives is known only when it has given all of them: it may leave some out, or repeat some.
    """

    yields: str  # what the source is expected to yield, for the error

    def __init__(self, pruner: Pruner, source: Any, batch_size: int, drop_last: bool) -> None:
        self.source = source
        super().__init__(pruner, batch_size, drop_last)  # calls share()

    def remaining_of(self, items: Iterable[Any]) -> Iterator[SomeIds]:
        """Yield the ids of each item that remain in the epoch, if any do."""
        for item in items:
            ids = np.asarray(item)
            if not ids.size:
                continue
            if ids.ndim != 1 or ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= self.remaining.size:
                raise PrunedataError(f"Expected the {self.yields} from 0 to {self.remaining.size - 1}. Got {item!r}.")
            ids = ids[self.remaining[ids]]
            if ids.size:
                yield ids

    def batches(self) -> Iterator[SomeIds]:
        """Yield the ids of each batch, shape (n,)."""
        return self.reported(super().batches())

    def ids(self) -> Iterator[int]:
        """Yield the ids one by one."""
        for piece in self.reported(cut_batches(self.pieces(), 1)):
            yield from piece.tolist()

    def may_deliver(self, epoch: Epoch) -> Mask:
        """Return all kept samples: until the source has ended, it may give any of them."""
        return epoch.keep

    def reported(self, batches: Iterator[SomeIds]) -> Iterator[SomeIds]:
        """Yield the batches, and report which samples the source gives as soon as the last batch is known.

        That is before the last batch is yielded: a loop that counts its batches never asks for one more.
        """
        self.begin_unless_begun()
        delivery = self.delivery
        delivery.given = self.may_deliver(self.pruner.current)  # a trainer without the loader may iterate twice
        given = np.zeros(self.pruner.samples, dtype=np.bool_)
        ids = 0
        previous: SomeIds | None = None
        for batch in batches:
            given[batch] = True
            ids += len(batch)
            if previous is not None:
                yield previous
            previous = batch
        delivery.given = given
        # Only a pass over all kept samples shows that the source gives each once; any pass can show a repeat.
        repeats = ids != int(np.count_nonzero(given))
        if repeats or (self.gives_once is None and np.count_nonzero(self.remaining) == self.pruner.current.kept):
            self.gives_once = not repeats
        if previous is not None:
            yield previous


class FilteredSampler(FilteredOrder):
    """Your sampler's order. Batches are cut after the left-out samples are removed, so that they are full."""

    yields = "sampler to yield ids"

    def __init__(self, pruner: Pruner, source: Any, batch_size: int, drop_last: bool) -> None:
        self.gives_once = _gives_once(source)
        super().__init__(pruner, source, batch_size, drop_last)

    def share(self, kept: int) -> int:
        """Return ``kept``; at least a batch for a sampler that repeats samples, which can always fill one."""
        source = self.source
        repeats = getattr(source, "replacement", False) or self.gives_once is False
        once = hasattr(source, "__len__") and not repeats and len(source) <= self.pruner.samples
        return kept if once else max(kept, self.batch_size)

    def pieces(self) -> Iterator[SomeIds]:
        """Yield the ids that the sampler gives and that remain in the epoch, in arrays of shape (n,)."""
        return self.remaining_of(_chunks(self.source, self.batch_size))

    def num_ids(self, kept: int) -> int:
        """Return the sampler's length; at most ``kept``, if it is known to give each sample once."""
        given = len(self.source)
        return min(given, kept) if self.gives_once else given


class FilteredBatches(FilteredOrder):
    """Your batch sampler's batches, without their left-out samples. Batches that are empty then are skipped."""

    yields = "batch sampler to yield lists of ids"

    def __init__(self, pruner: Pruner, source: Any) -> None:
        super().__init__(pruner, source, 1, False)

    def pieces(self) -> Iterator[SomeIds]:
        """Yield the ids of each batch that remain in the epoch, in arrays of shape (n,)."""
        return self.remaining_of(self.source)

    def batches(self) -> Iterator[SomeIds]:
        """Yield the same: each piece is a batch."""
        return self.reported(self.pieces())

    def samplers(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """Return a sampler and a batch sampler; only the latter, as the sampler, for a loader that has it there."""
        ids = StandIn(self.__len__, self.until_exhausted(self.ids), getattr(self.source, "sampler", None))
        batches = StandIn(self.next_batches, self.until_exhausted(self.lists), self.source, {"sampler": ids})
        return {"sampler": batches} if loader.batch_sampler is None else {"sampler": ids, "batch_sampler": batches}

    def num_ids(self, kept: int) -> int:
        """Return the length of the batch sampler, which may stand in the place of a sampler."""
        return len(self.source)

    def num_batches(self, kept: int) -> int:
        """Return the length of the batch sampler: fewer batches come, where some are empty."""
        return len(self.source)


def _chunks(source: Iterable[Any], size: int) -> Iterator[list[Any]]:
    items = iter(source)
    while chunk := list(islice(items, size)):
        yield chunk


def _gives_once(source: Any) -> bool | None:
    """Return whether a sampler gives no sample twice; None if only a pass over it can show that.

    A sampler may have an attribute ``gives_once``, which adapters set for samplers that they know.
    """
    if isinstance(source, Sequence):
        with suppress(TypeError):  # slices and lists cannot be in a set; their batches raise a clear error
            return len(set(source)) == len(source)
        return None
    if type(source) is SubsetRandomSampler:
        return len(set(source.indices)) == len(source)
    if type(source) is RandomSampler:
        return not source.replacement and len(source) <= len(source.data_source)
    return True if type(source) in (SequentialSampler, DistributedSampler) else getattr(source, "gives_once", None)
