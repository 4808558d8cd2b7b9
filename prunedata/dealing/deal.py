"""What a dealer answers: a batch to train on, that there is none yet, and what became of a report."""

import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace

from prunedata.types import Ids, Weights

__all__ = ["Deal", "Receipt", "Wait", "until_done"]


@dataclass(frozen=True, eq=False)
class Deal:
    """A batch that a worker was given to train on.

    Attributes
    ----------
    ticket : str
        Names this deal. A batch that is dealt again has another ticket, and the old one is void.
    epoch : int
        Number of the epoch, from 0.
    number : int
        Which batch of the epoch, from 0, in the epoch's own order.
    ids : ndarray of int64, shape (n,)
        The samples. Read-only.
    worker : hashable
        Who was given it.
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
    """Not empty once the weights were read; one list for all deals of an epoch that are in the dealer's process."""

    @property
    def weights(self) -> Weights | None:
        """What the loss of each counts, by the policy or as ``Epoch.factors`` has it; shape (n,), float32, read-only.

        Train on the mean of ``weights * losses``, and observe the losses as they are. None if all count alike. Who
        reads them applies them: if nobody does in an epoch, it ends with :class:`UnweighedWarning`.
        """
        self._reads[:] = [True]
        return self._weights

    @property
    def was_read(self) -> bool:
        """Whether the weights were read, in the process where this deal is."""
        return bool(self._reads)

    def without_arrays(self) -> "Deal":
        """A copy for the way back to the dealer, which has the arrays."""
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

    What the next epoch trains on depends on the losses of this one, so it does not begin before they have all come.

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
    """What became of a report. It is true if the report counts.

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
