"""The batches of one epoch: those still to deal, those that workers have, and those that came back."""

from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np

from prunedata.run.epoch import Epoch, read_only
from prunedata.run.order import cut_batches
from prunedata.types import Ids

__all__ = ["Batch", "Deck"]


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of the epoch, and who has it since when."""

    number: int
    ids: Ids
    attempt: int = 0
    worker: Hashable = None
    since: float = 0.0


class Deck:
    """The batches of an epoch. Each is to be dealt, or out with a worker, or settled; it is settled once.

    Parameters
    ----------
    epoch : Epoch
        Its kept samples are cut in the epoch's order. In a run that was resumed within the epoch the batches are the
        same, without the samples that were observed before.
    batch_size : int
    skip : collection of int
        Numbers of batches that are not dealt.
    """

    def __init__(self, epoch: Epoch, batch_size: int, skip: Collection[int] = ()) -> None:
        self.epoch = epoch
        self.out: dict[int, Batch] = {}
        """The batches that workers have, by the numbers of their deals."""
        self.reads: list[bool] = []
        """Not empty once somebody has read the weights of a deal."""
        self._fresh = self._cut(epoch, batch_size, skip)
        self._next = next(self._fresh, None)  # one ahead, to know whether there is one
        self._returned: list[tuple[int, Batch]] = []

    @staticmethod
    def _cut(epoch: Epoch, batch_size: int, skip: Collection[int]) -> Iterator[Batch]:
        resumed = epoch.remaining is not epoch.keep
        for number, cut in enumerate(cut_batches(epoch.order_of(epoch.keep), batch_size)):
            ids = np.array(cut[epoch.remaining[cut]] if resumed else cut, dtype=np.int64)
            if ids.size and number not in skip:
                yield Batch(number, read_only(ids))

    @property
    def has_more(self) -> bool:
        """Whether a batch is to be dealt."""
        return self._next is not None or bool(self._returned)

    @property
    def is_done(self) -> bool:
        """Whether every batch is settled."""
        return not self.has_more and not self.out

    def deal(self, deal: int, worker: Hashable, now: float) -> Batch:
        """Take the first batch that is to be dealt, one that came back before a new one."""
        if self._returned:
            _, batch = heappop(self._returned)
        else:
            assert self._next is not None
            batch, self._next = self._next, next(self._fresh, None)
        self.out[deal] = batch = replace(batch, attempt=batch.attempt + 1, worker=worker, since=now)
        return batch

    def settle(self, deal: int) -> None:
        """Be done with the batch of a deal that is out."""
        del self.out[deal]

    def put_back(self, deals: Collection[int]) -> int:
        """Let the batches of deals that are out be dealt again; return how many samples they have."""
        samples = 0
        for deal in deals:
            batch = self.out.pop(deal)
            heappush(self._returned, (batch.number, batch))
            samples += batch.ids.size
        return samples
