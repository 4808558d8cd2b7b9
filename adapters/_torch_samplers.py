"""PyTorch samplers over the kept samples: our own order, or the user's with the pruned samples left out."""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, DistributedSampler, Sampler

from prunedata.errors import PrunedataError
from prunedata.run.epoch import Epoch
from prunedata.run.order import cut_batches, epoch_order
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["Walk", "walk_for"]


class Walk:
    """An epoch's ids in our own order: cut into batches, and dealt to the ranks of a DistributedSampler."""

    resumable = True
    """Whether the order is the same when it is asked for again, so that a position in it has a meaning."""

    def __init__(self, pruner: Pruner, sampler: Any, batch_size: int, drop_last: bool) -> None:
        self.pruner, self.batch_size, self.drop_last = pruner, batch_size, drop_last
        dealt = isinstance(sampler, DistributedSampler)
        self.shuffle = sampler.shuffle if dealt else type(sampler).__name__ == "RandomSampler"
        self.world: int = sampler.num_replicas if dealt else 1
        self.rank: int = sampler.rank if dealt else 0
        self.drop_uneven = dealt and sampler.drop_last
        self.keep = self.remaining = np.zeros(0, dtype=np.bool_)
        self.excused = 0
        self.most = math.inf
        """Samples that can be delivered in this pass; a user's own sampler may repeat some."""
        self._epoch: Epoch | None = None

    def begin(self, epoch: Epoch, *, whole: bool = False) -> None:
        """Set out on what remains of an epoch, or on the whole of it."""
        self._epoch = epoch
        self.keep, self.remaining = epoch.keep, epoch.keep if whole else epoch.remaining
        self._excuse(self._left_out())

    def _begin_unless_begun(self) -> None:
        """For who takes the samplers out of the loader and iterates them without it, as accelerate does."""
        if self._epoch is not self.pruner.current:
            self.begin(self.pruner.current)

    def _left_out(self) -> int:
        """Kept samples that drop_last, here or of the ranks, leaves out."""
        ids = int(np.count_nonzero(self.keep))
        each = self._each(ids)
        tail = each % self.batch_size if self.drop_last else 0
        return max(0, ids - (each - tail) * self.world)

    def finish(self, delivered: int) -> None:
        """Reckon what is known only when the loader has come to its end."""

    def _excuse(self, samples: int) -> None:
        self.excused = samples
        self.pruner.note_left_out(samples)

    def samplers(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """What stands in the place of the loader's own sampler and batch sampler."""
        ids = _Sampler(self.__len__, self.ids)
        if loader.batch_sampler is None:
            return {"sampler": ids}
        batches = _Sampler(self.batches, self.lists)
        batches.sampler, batches.batch_size, batches.drop_last = ids, self.batch_size, self.drop_last
        return {"sampler": ids, "batch_sampler": batches}

    def pieces(self) -> Iterator[SomeIds]:
        self._begin_unless_begun()
        epoch = self.pruner.current
        alone = self.world == 1
        mask = self.remaining if alone else self.keep
        pieces = epoch_order(mask, seed=epoch.seed, epoch=epoch.number, shuffle=self.shuffle)
        if alone:
            yield from pieces
            return
        # Filter, then pad or drop, then deal: every rank gets as many. What a resumed epoch has behind it is left
        # out last, because each rank knows that of its own share only.
        ids = np.concatenate(list(pieces))
        dealt = np.resize(ids, self._each(ids.size) * self.world)[self.rank :: self.world]
        yield dealt[self.remaining[dealt]]

    def _each(self, ids: int) -> int:
        """How many of ``ids`` a rank gets."""
        return ids // self.world if self.drop_uneven else -(-ids // self.world)

    def ids(self) -> Iterator[int]:
        for piece in self.pieces():
            yield from piece.tolist()

    def lists(self) -> Iterator[list[int]]:
        for batch in cut_batches(self.pieces(), self.batch_size, drop_last=self.drop_last):
            yield batch.tolist()

    def __len__(self) -> int:
        last = self.pruner.schedule.epochs - 1
        return self._each(self.pruner.kept_in(min(self.pruner.next_epoch, last)))

    def batches(self) -> int:
        return len(self) // self.batch_size if self.drop_last else -(-len(self) // self.batch_size)


class _Filter(Walk):
    """A user's own sampler or batch sampler: its order, without the pruned samples."""

    resumable = False

    def __init__(self, pruner: Pruner, source: Any, batched: bool, batch_size: int, drop_last: bool) -> None:
        super().__init__(pruner, None, batch_size, drop_last)
        self.source, self.batched = source, batched

    def samplers(self, loader: DataLoader[Any]) -> dict[str, Any]:
        found = super().samplers(loader)
        if self.batched and loader.batch_sampler is None:
            found["sampler"] = _Sampler(self.batches, self.lists)
        return found

    def _left_out(self) -> int:
        """Nothing is excused before the sampler has given all that it gives."""
        return 0

    def pieces(self) -> Iterator[SomeIds]:
        self._begin_unless_begun()
        for item in self.source if self.batched else _chunks(self.source, self.batch_size):
            ids = np.asarray(item)
            if not ids.size:
                continue
            if ids.ndim != 1 or ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= self.remaining.size:
                raise PrunedataError(
                    f"Expected the {'batch ' * self.batched}sampler to yield {'lists of ' * self.batched}ids from 0 to "
                    f"{self.remaining.size - 1}. Got {item!r}."
                )
            ids = ids[self.remaining[ids]]
            if ids.size:
                yield ids

    def ids(self) -> Iterator[int]:
        for piece in self._watched(cut_batches(self.pieces(), 1)):
            yield from piece.tolist()

    def lists(self) -> Iterator[list[int]]:
        pieces = self.pieces()
        if not self.batched:
            pieces = cut_batches(pieces, self.batch_size, drop_last=self.drop_last)
        for batch in self._watched(pieces):
            yield batch.tolist()

    def _watched(self, batches: Iterator[SomeIds]) -> Iterator[SomeIds]:
        """Pass batches on, and excuse what the sampler does not give as soon as the last one is known to be it.

        That is before the last one is passed on: a loop that counts batches never asks for another.
        """
        given = np.zeros(self.pruner.samples, dtype=np.bool_)
        waiting: SomeIds | None = None
        for batch in batches:
            given[batch] = True
            if waiting is not None:
                yield waiting
            waiting = batch
        self._begin_unless_begun()  # where the sampler gave nothing at all
        self._excuse(int(np.count_nonzero(self.remaining & ~given)))
        if waiting is not None:
            yield waiting

    def __len__(self) -> int:
        """Of a sampler that gives each sample once; for others, at most."""
        given = len(self.source)
        repeats = getattr(self.source, "replacement", False) or given > self.pruner.samples
        return given if self.batched or repeats else min(given, super().__len__())

    def batches(self) -> int:
        return len(self) if self.batched else super().batches()


def _chunks(source: Iterable[Any], size: int) -> Iterator[list[Any]]:
    items = iter(source)
    while chunk := list(islice(items, size)):
        yield chunk


class _Sampler(Sampler[Any]):
    """What DataLoader wants to see: a length and a fresh iterator at every call."""

    sampler: Any
    batch_size: int
    drop_last: bool

    def __init__(self, length: Callable[[], int], walk: Callable[[], Iterator[Any]]) -> None:
        self._length, self._walk = length, walk

    def __len__(self) -> int:
        return self._length()

    def __iter__(self) -> Iterator[Any]:
        return self._walk()


def walk_for(loader: DataLoader[Any], pruner: Pruner) -> Walk:
    """Our own order in the place of PyTorch's random, sequential or distributed one; else a filter of the user's."""
    batch_sampler: Any = loader.batch_sampler
    sampler: Any = loader.sampler
    batch_size, drop_last = loader.batch_size or 1, loader.drop_last
    if batch_sampler is None and _is_plain(sampler, "BatchSampler"):
        return _Filter(pruner, sampler, True, 1, False)
    if batch_sampler is not None:
        if not _is_plain(batch_sampler, "BatchSampler"):
            return _Filter(pruner, batch_sampler, True, 1, False)
        sampler, batch_size, drop_last = (
            batch_sampler.sampler,
            batch_sampler.batch_size,
            batch_sampler.drop_last,
        )
    ours = _is_plain(sampler, "RandomSampler", "SequentialSampler", "DistributedSampler", "StatefulDistributedSampler")
    if ours and not getattr(sampler, "replacement", False):
        everything: Any = sampler.dataset if isinstance(sampler, DistributedSampler) else sampler
        if len(everything) == pruner.samples:
            return Walk(pruner, sampler, batch_size, drop_last)
    return _Filter(pruner, sampler, False, batch_size, drop_last)


def _is_plain(sampler: Any, *names: str) -> bool:
    """Whether it is PyTorch's own class of that name, or torchdata's, not a user's subclass of it."""
    kind = type(sampler)
    return kind.__name__ in names and kind.__module__.partition(".")[0] in ("torch", "torchdata")
