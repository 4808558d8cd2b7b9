"""The answers of a dealer: a batch to train on, a wait, and the receipt of a report."""

import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace

from prunedata.types import Ids, Weights

__all__ = ["Deal", "Receipt", "Wait", "until_done"]


@dataclass(frozen=True, eq=False)
class Deal:
    """A batch dealt to a worker.

    Attributes
    ----------
    ticket : str
        The name of this deal. A batch that is dealt again has another ticket, and the old one is void.
    epoch : int
        Number of the epoch, from 0.
    number : int
        Which batch of the epoch, from 0, in the epoch's own order.
    ids : ndarray of int64, shape (n,)
        The samples. Read-only.
    worker : hashable
        The worker that has it.
    attempt : int
        How often the batch has been dealt, this time included: 1, or more if workers were lost or took too long.
    """

    ticket: str
    epoch: int
    number: int
    ids: Ids
    _weights: Weights | None
    worker: Hashable
    attempt: int = 1
    _reads: list[bool] = field(default_factory=list, repr=False)
    """Not empty once weights were read; one list for all deals of an epoch in the dealer's process."""

    @property
    def weights(self) -> Weights | None:
        """The factor of each loss, see :meth:`prunedata.Epoch.factors`: shape (n,), float32, read-only.

        Train on the mean of ``weights * losses``, and observe the losses as they are. None if all count alike. Reading
        them is taken as applying them: an epoch in which no worker does ends with :class:`UnweighedWarning`.
        """
        self._reads[:] = [True]
        return self._weights

    @property
    def was_read(self) -> bool:
        """Whether the weights were read, in the process where this deal is."""
        return bool(self._reads)

    def without_arrays(self) -> "Deal":
        """Return a copy for the way back to the dealer, which has the arrays."""
        return replace(self, ids=self.ids[:0], _weights=None)

    def __repr__(self) -> str:
        """One line, without the arrays."""
        again = f", attempt={self.attempt}" if self.attempt > 1 else ""
        weighed = "" if self._weights is None else ", weighted"
        who = f"worker={self.worker!r}"
        return f"Deal(epoch={self.epoch}, number={self.number}, samples={self.ids.size}{weighed}, {who}{again})"


@dataclass(frozen=True)
class Wait:
    """Nothing to deal yet: ask again later.

    The samples of the next epoch depend on the losses of this one, so it begins only when all have come.

    Attributes
    ----------
    epoch : int
        Number of the open epoch.
    outstanding : int
        Samples that other deals have, and that have not been reported. 0 if the epoch waits for ``end_epoch()``.
    """

    epoch: int
    outstanding: int


@dataclass(frozen=True)
class Receipt:
    """The result of a report. It is true if the report counts.

    Attributes
    ----------
    recorded : bool
        Whether it counts. If not, nothing was changed.
    why : str
        In words.
    """

    recorded: bool
    why: str

    def __bool__(self) -> bool:
        return self.recorded


def until_done(ask: Callable[[], Deal | Wait | None], poll: float) -> Iterator[Deal]:
    """Yield what ``ask`` deals until it is None, asking again after ``poll`` seconds while there is none."""
    while (deal := ask()) is not None:
        if isinstance(deal, Wait):
            time.sleep(poll)
        else:
            yield deal
