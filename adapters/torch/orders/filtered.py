"""An order of the user's own, with the pruned samples left out: what samplers and batch samplers have in common."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from prunedata.adapters.torch.orders.sampled import SampledOrder
from prunedata.errors import PrunedataError
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.types import Mask, SomeIds

__all__ = ["FilteredOrder"]


class FilteredOrder(SampledOrder):
    """What ``source`` gives, in its order and without the pruned samples.

    What it gives is known only when it has given all: it may leave samples out, or repeat some.
    """

    yields = "sampler to yield ids"
    """What is expected of the source, for the error."""

    def __init__(self, pruner: Pruner, source: Any, batch_size: int, drop_last: bool) -> None:
        self.source = source
        super().__init__(pruner, batch_size, drop_last)  # asks for a share

    def kept(self, items: Iterable[Any]) -> Iterator[SomeIds]:
        """Yield each list of ids without those that are pruned, unless nothing is left of it."""
        for item in items:
            ids = np.asarray(item)
            if not ids.size:
                continue
            if ids.ndim != 1 or ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= self.remaining.size:
                raise PrunedataError(f"Expected the {self.yields} from 0 to {self.remaining.size - 1}. Got {item!r}.")
            ids = ids[self.remaining[ids]]
            if ids.size:
                yield ids

    def promised(self, epoch: Epoch) -> Mask:
        """Everything: a source that is left early has not said what else it would have given."""
        return epoch.keep

    def watched(self, batches: Iterator[SomeIds]) -> Iterator[SomeIds]:
        """Pass batches on, and say what the source gives as soon as the last one is known to be the last.

        That is before the last one is passed on: a loop that counts batches never asks for another.
        """
        self.begin_unless_begun()
        delivery = self.delivery
        delivery.given = self.promised(self.pruner.current)  # who has no loader begins once, and may walk twice
        given = np.zeros(self.pruner.samples, dtype=np.bool_)
        ids = 0
        waiting: SomeIds | None = None
        for batch in batches:
            given[batch] = True
            ids += len(batch)
            if waiting is not None:
                yield waiting
            waiting = batch
        delivery.given = given
        self._learn(once=ids == int(np.count_nonzero(given)))
        if waiting is not None:
            yield waiting

    def _learn(self, *, once: bool) -> None:
        """Take note whether the source gave no sample twice, which only a pass over all kept samples can show."""
        whole = int(np.count_nonzero(self.remaining)) == self.pruner.current.kept
        if not once or (whole and self.once is None):
            self.once = once
