"""Orders that samplers give in the main process: their base class, and the sampler that a loader gets for them."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Sampler

from prunedata.adapters.torch.orders.base import Order, two_iterators_error
from prunedata.adapters.torch.trainers import dropped_by_accelerate, refuse_sharing
from prunedata.run.order import cut_batches
from prunedata.types import SomeIds


class SampledOrder(Order):
    """An order that consists of arrays of ids, which samplers give one by one or cut into batches."""

    source: Any = None
    """The user's own sampler or batch sampler, if the order has one: the loader's sampler shows its attributes."""

    @abstractmethod
    def pieces(self) -> Iterator[SomeIds]:
        """Yield the ids that are to be delivered, in arrays of shape (n,)."""

    @abstractmethod
    def num_ids(self, kept: int) -> int:
        """Return how many ids an epoch of ``kept`` samples has."""

    def __len__(self) -> int:
        """Return how many ids the open epoch has, or else the next one."""
        return self.num_ids(self.next_kept())

    def ids(self) -> Iterator[int]:
        """Yield the ids one by one."""
        for piece in self.pieces():
            yield from piece.tolist()

    def batches(self) -> Iterator[SomeIds]:
        """Yield the ids of each batch, shape (n,)."""
        return cut_batches(self.pieces(), self.batch_size, drop_last=self.drop_last)

    def lists(self) -> Iterator[list[int]]:
        """Yield the ids of each batch, as a list."""
        for batch in self.batches():
            yield batch.tolist()

    def num_batches(self, kept: int) -> int:
        """Return how many batches of the loader's size the ids make."""
        ids = self.num_ids(kept)
        return ids // self.batch_size if self.drop_last else -(-ids // self.batch_size)

    def next_batches(self) -> int:
        """Return how many batches the open epoch has, or else the next one."""
        return self.num_batches(self.next_kept())

    def samplers(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """Return a sampler, and a batch sampler if the loader has one."""
        ids = StandIn(self.__len__, self.until_exhausted(self.ids), self.source)
        if loader.batch_sampler is None:
            return {"sampler": ids}
        own = {"sampler": ids, "batch_size": self.batch_size, "drop_last": self.drop_last}
        return {"sampler": ids, "batch_sampler": StandIn(self.next_batches, self.until_exhausted(self.lists), own=own)}

    def until_exhausted(self, iterate: Callable[[], Iterator[Any]]) -> Callable[[], Iterator[Any]]:
        """Return ``iterate`` as a function that also notes when it has yielded everything."""

        def iterate_and_note() -> Iterator[Any]:
            yield from iterate()
            self._exhausted = True

        return iterate_and_note

    def begin_unless_begun(self) -> None:
        """Begin the epoch for a trainer that iterates the samplers without their loader, as accelerate does."""
        self.run.let_trainer_begin()
        epoch = self.pruner.current
        if self._begun is not epoch:
            refuse_sharing(
                self.world,
                with_ids=self.with_ids,
                zero_weights=self.pruner.leave_out == "weight" or self.pruner.holdout is not None,
            )
            self.begin(epoch)
            if self.run.group_size() > self.world:
                self._received = np.zeros(self.pruner.samples, dtype=np.bool_)
            self.delivery.left_out += dropped_by_accelerate(self.num_batches(epoch.kept)) * self.batch_size
        elif self._exhausted:
            self.run.warn_of_second_pass(epoch)


class StandIn(Sampler[Any]):
    """A sampler in the place of the user's own. Of the iterators over it only the newest may be used.

    Attributes that it doesn't have are read from ``source``, if there is one, and set there: trainers look for
    ``set_epoch`` on a loader's sampler. Those in ``own`` are this object's.
    """

    _length: Callable[[], int]
    _iterate: Callable[[], Iterator[Any]]
    _source: Any
    _newest: object  # a mark of the newest iterator

    def __init__(
        self,
        length: Callable[[], int],
        iterate: Callable[[], Iterator[Any]],
        source: Any = None,
        own: dict[str, Any] | None = None,
    ) -> None:
        vars(self).update(own or {}, _length=length, _iterate=iterate, _source=source, _newest=None)

    def __len__(self) -> int:
        return self._length()

    def __iter__(self) -> Iterator[Any]:
        # This runs when the first item is asked for: trainers make iterators that they never use.
        mark = self._newest = object()
        for item in self._iterate():
            if self._newest is not mark:
                break
            yield item
        if self._newest is not mark:
            raise two_iterators_error()

    def __getattr__(self, name: str) -> Any:
        source = vars(self).get("_source")
        if source is None or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(source, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._source is None or name in vars(self):
            super().__setattr__(name, value)
        else:
            setattr(self._source, name, value)
