"""The batches of one epoch, and what a dealer answers: a batch to train on, a wait, the receipt of a report."""

import time
from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from secrets import token_hex

import numpy as np

from prunedata.errors import PrunedataError
from prunedata.run.epoch import Epoch, read_only
from prunedata.run.order import cut_batches
from prunedata.types import Ids, Weights


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
    _reads: list[bool] = field(default_factory=list)
    """Not empty once weights were read; one list for all deals of an epoch in the dealer's process."""
    _since: float = 0.0  # when it was dealt, by the dealer's clock

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
    """The result of a report: true if it counts, and why, in words. If it doesn't count, nothing was changed."""

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


class Deck:
    """The batches of an epoch. Each is to be dealt, or out with a worker, or settled; it is settled once.

    The epoch's kept samples are cut in its order. In a run that was resumed within the epoch the batches are the same,
    without the samples that were observed before. Those whose numbers are in ``skip`` are not dealt.
    """

    def __init__(self, epoch: Epoch, batch_size: int, skip: Collection[int] = ()) -> None:
        self.epoch = epoch
        self.out: dict[str, Deal] = {}
        """The deals that workers have, by ticket."""
        self.reads: list[bool] = []
        """Not empty once the weights of a deal were read."""
        self._fresh = self._cut(epoch, batch_size, skip)
        self._next = next(self._fresh, None)  # one ahead, to know whether there is one
        self._returned: list[tuple[int, Ids, int]] = []  # a heap: number, ids, and how often each was dealt
        self.withdrawn: set[str] = set()
        """Tickets of deals that were taken back."""
        # A dealer that is restored has another deck, and with it another token: old tickets name nothing in it.
        self.token, self.dealt = token_hex(6), 0

    @staticmethod
    def _cut(epoch: Epoch, batch_size: int, skip: Collection[int]) -> Iterator[tuple[int, Ids]]:
        resumed = epoch.remaining is not epoch.keep
        for number, cut in enumerate(cut_batches(epoch.order_of(epoch.keep), batch_size)):
            ids = np.array(cut[epoch.remaining[cut]] if resumed else cut, dtype=np.int64)
            if ids.size and number not in skip:
                yield number, read_only(ids)

    @property
    def has_more(self) -> bool:
        """Whether a batch is to be dealt."""
        return self._next is not None or bool(self._returned)

    @property
    def is_done(self) -> bool:
        """Whether every batch is settled."""
        return not self.has_more and not self.out

    def deal(self, worker: Hashable, now: float) -> Deal:
        """Deal the first batch that is to be dealt; one that came back goes before a new one."""
        if self._returned:
            number, ids, before = heappop(self._returned)
        else:
            assert self._next is not None
            (number, ids), before = self._next, 0
            self._next = next(self._fresh, None)
        ticket = f"{self.token}-{self.dealt}"
        self.dealt += 1
        weights = read_only(self.epoch.detached().factors(ids)) if self.epoch.is_weighed else None
        deal = Deal(ticket, self.epoch.number, number, ids, weights, worker, before + 1, self.reads, now)
        self.out[ticket] = deal
        return deal

    def take_back(self, which: Callable[[Deal], bool]) -> int:
        """Withdraw deals, so that their batches are dealt again; return how many samples these have."""
        deals = [deal for deal in self.out.values() if which(deal)]
        for deal in deals:
            del self.out[deal.ticket]
            self.withdrawn.add(deal.ticket)
            heappush(self._returned, (deal.number, deal.ids, deal.attempt))
        return sum(deal.ids.size for deal in deals)

    def take_back_overdue(self, before: float) -> None:
        """Withdraw the deals that were dealt up to a moment of the dealer's clock."""
        self.take_back(lambda deal: deal._since <= before)


def why_void(deck: Deck | None, ticket: object) -> str:
    """Return why a report by a ticket that is not out doesn't count. Raises :class:`PrunedataError` for no ticket."""
    token, _, number = ticket.partition("-") if isinstance(ticket, str) else ("", "", "")
    ours = deck is not None and deck.token == token
    if not (number.isascii() and number.isdigit()) or (deck is not None and ours and int(number) >= deck.dealt):
        raise PrunedataError(f"Expected what deal() returned, or its ticket. Got {ticket!r}.")
    if not ours:
        return "it was dealt in an epoch that has ended, before the dealer was restored, or by another dealer"
    if deck is not None and ticket in deck.withdrawn:
        return "it was taken back, as its worker was lost or took too long: it is dealt again"
    return "it was reported before"
