"""The dealer: it owns a run, deals the kept samples of each epoch to workers, and takes their losses back."""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Never

import numpy as np

from prunedata.checks import LARGEST, integer, real, shown
from prunedata.counting.batches import plain_losses
from prunedata.dealing.deal import Deal, Deck, Receipt, Wait, until_done, why_void
from prunedata.errors import LossError, NotInEpoch, PrunedataError, SkippedSamples
from prunedata.run.adapter import Adapter
from prunedata.run.pruner import Pruner
from prunedata.types import Ids, Recorded
from prunedata.uninterrupted import Uninterrupted

FORMAT = 1  # of a dealer's state


class Dealer:
    """Deal the kept samples of each epoch to workers in batches, and record the loss of each exactly once.

    For training without common steps: workers that come and go, parameter servers, actors. A worker takes a batch
    with :meth:`deal` and reports its losses with :meth:`observe`. If a worker dies, :meth:`lost` deals its batches to
    others, or ``deal_again_after`` does. When every batch is observed or skipped, the epoch ends and is committed.

    It may be called from several threads. A copy or pickle of it would be a second owner of the run, so put it in
    one process and let others call it there, as ``prunedata.adapters.ray`` does.

    Parameters
    ----------
    pruner : Pruner
        The run. From now on the dealer begins and ends its epochs, and records its losses.
    batch_size : int
        Samples in a batch; the last of an epoch may be smaller.
    deal_again_after : float, optional
        Seconds after which a batch that was not reported is dealt again. By default never: call :meth:`lost`.
    auto_end : bool
        End an epoch as soon as every batch is observed or skipped. With False it waits for :meth:`end_epoch`, and
        :meth:`deal` returns :class:`Wait` until then: save the model first, as the end commits the epoch to the store.
    clock : callable
        Seconds, for ``deal_again_after``.

    Raises
    ------
    PrunedataError
        If an argument makes no sense, or the pruner has a dealer already.

    Examples
    --------
    >>> import numpy as np
    >>> from prunedata import Dealer, Pruner, Schedule
    >>> pruner = Pruner(100, Schedule(4, window=4, start=2, block=2, pruned_per_block=1), prune=0.25)
    >>> dealer = Dealer(pruner, batch_size=32)
    >>> for deal in dealer.deals("worker 0"):
    ...     receipt = dealer.observe(deal, np.cos(deal.ids))  # a loss for each id
    >>> [record["kept"] for record in pruner.history]
    [100, 100, 75, 100]
    """

    def __init__(
        self,
        pruner: Pruner,
        batch_size: int,
        *,
        deal_again_after: float | None = None,
        auto_end: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(pruner, Pruner):
            raise PrunedataError(f"Expected a Pruner. Got {type(pruner).__name__}.")
        self.pruner, self.batch_size = pruner, integer("batch_size", batch_size, 1)
        if deal_again_after is not None:
            deal_again_after = real("deal_again_after", deal_again_after, 0, above=True)
        self.deal_again_after = deal_again_after
        self.auto_end, self._clock = bool(auto_end), clock
        # Steps happen whole, as the pruner's own do: a signal's handler that saves must not see half of one.
        self._uninterrupted = Uninterrupted()
        self._deck: Deck | None = None
        self._skipped: dict[int, int] = {}  # samples of each skipped batch of the open epoch, by its number
        self._staleness: Counter[int] = Counter()
        self._newest = 0  # the newest version of the weights that a report has named
        if pruner.attach(_Watch(self)).dealer is not self:
            raise PrunedataError("Expected a Pruner without a dealer. Got one that has one: a run has one owner.")

    # -- where it stands

    @property
    def is_finished(self) -> bool:
        """Whether the run has no epoch left."""
        return self._deck is None and self.pruner.next_epoch >= self.pruner.schedule.epochs

    @property
    def is_epoch_done(self) -> bool:
        """Whether an epoch is open and every batch of it observed or skipped. With ``auto_end`` it then ends."""
        deck = self._deck
        return deck is not None and deck.is_done

    @property
    def outstanding(self) -> dict[Hashable, int]:
        """How many samples each worker has been dealt and has not reported."""
        with self._uninterrupted:
            samples: Counter[Hashable] = Counter()
            for deal in self._out.values():
                samples[deal.worker] += deal.ids.size
            return dict(samples)

    @property
    def staleness(self) -> dict[int, int]:
        """How many reports were how stale, of those that named a version. See :meth:`observe`."""
        with self._uninterrupted:
            return dict(sorted(self._staleness.items()))

    # -- for workers

    def deal(self, worker: Hashable) -> Deal | Wait | None:
        """Give a worker its next batch. A worker may have several at once.

        Parameters
        ----------
        worker : hashable
            Its name, as a str or an int. New names may come at any time.

        Returns
        -------
        Deal, Wait or None
            A batch; or that there is none until others have reported theirs; or None, when the run is done.
        """
        found = self.deal_many(worker, 1)
        return found[0] if isinstance(found, list) else found

    def deal_many(self, worker: Hashable, most: int) -> list[Deal] | Wait | None:
        """Give a worker its next batches, up to ``most`` of one epoch: one call in place of several.

        At the end of an epoch the others wait for a worker that has several batches left: let ``most`` be small beside
        the batches that a worker gets in an epoch. Returns at least one batch; or a Wait or None, as :meth:`deal`.
        """
        if not isinstance(worker, Hashable):
            raise PrunedataError(f"Expected the name of a worker, as a str or an int. Got {worker!r}.")
        most = integer("most", most, 1)
        with self._uninterrupted:
            if self.deal_again_after is not None and self._deck is not None:
                self._deck.take_back_overdue(self._clock() - self.deal_again_after)
            while not self.is_finished:
                deck = self._open()
                deals: list[Deal] = []
                while len(deals) < most and deck.has_more:
                    deals.append(deck.deal(worker, self._clock()))
                if deals:
                    return deals
                if not (deck.is_done and self.auto_end):
                    return Wait(deck.epoch.number, sum(deal.ids.size for deal in deck.out.values()))
                self._end(deck)  # an epoch that was restored when it was done already
            return None

    def deals(self, worker: Hashable, *, poll: float = 0.01) -> Iterator[Deal]:
        """Yield a worker's batches until the run is done, asking again every ``poll`` seconds while there is none."""
        return until_done(lambda: self.deal(worker), poll)

    def observe(
        self, deal: Deal | str, losses: Any, *, version: int | None = None, newest: int | None = None
    ) -> Receipt:
        """Record the losses of a batch, once.

        Parameters
        ----------
        deal : Deal or str
            What was dealt, or its ticket.
        losses : array of float, shape (n,)
            A loss for each of the batch's ids, in their order.
        version : int, optional
            Of the weights that made the losses: a number that grows by one with each update.
        newest : int, optional
            The version of the weights now, to which the gradients of this batch were applied. Staleness is ``newest``
            less ``version``. By default ``newest`` is the newest version that any report has named.

        Returns
        -------
        Receipt
            False, with the reason, if the batch was reported before or was taken back to be dealt again. Then nothing
            is recorded.

        Raises
        ------
        LossError
            If losses have a wrong shape or dtype or are not finite. The worker still has the batch: observe others,
            or :meth:`skip` it.
        """
        with self._uninterrupted:
            found = self._find(deal)
            if isinstance(found, Receipt):
                return found
            deck, checked = self._open(), _checked(losses, found.ids)
            latest = self._latest(version, newest)
            self.pruner.take_over()
            self.pruner.record(checked, found.ids)
            if version is not None:
                self._newest = max(self._newest, latest)
                self._staleness[latest - int(version)] += 1
            if isinstance(deal, Deal) and deal.was_read:
                deck.reads[:] = [True]  # a copy of it was, in the worker's process
            self._settle(deck, found.ticket)
            return Receipt(True, "recorded")

    def observe_many(
        self, reports: Iterable[tuple[Deal | str, Any]], *, version: int | None = None, newest: int | None = None
    ) -> list[Receipt]:
        """Record the losses of several batches, each as :meth:`observe` does: pairs of a deal and its losses.

        All are checked first: if one raises, none is recorded. ``version`` and ``newest`` hold for all of them.
        """
        with self._uninterrupted:
            reports = list(reports)
            for deal, losses in reports:
                found = self._find(deal)
                if isinstance(found, Deal):
                    _checked(losses, found.ids)
            self._latest(version, newest)
            return [self.observe(deal, losses, version=version, newest=newest) for deal, losses in reports]

    def skip(self, deal: Deal | str) -> Receipt:
        """Leave a batch unobserved, for example because its losses are not finite. It is not dealt again.

        Returns a receipt as :meth:`observe` does.
        """
        with self._uninterrupted:
            found = self._find(deal)
            if isinstance(found, Receipt):
                return found
            self.pruner.skip(found.ids.size)
            self._skipped[found.number] = found.ids.size
            self._settle(self._open(), found.ticket)
            return Receipt(True, "skipped")

    def lost(self, worker: Hashable) -> int:
        """Take back the batches of a worker that died or leaves, to deal them to others.

        Returns how many samples it had. If it reports them later, the report does not count.
        """
        with self._uninterrupted:
            return 0 if self._deck is None else self._deck.take_back(lambda deal: deal.worker == worker)

    # -- the epochs

    def end_epoch(self) -> None:
        """End the open epoch and commit it. For dealers with ``auto_end=False``.

        Raises :class:`NotInEpoch` if no epoch is open, and :class:`SkippedSamples` if not every batch is observed or
        skipped: then the epoch stays open.
        """
        with self._uninterrupted:
            deck = self._deck
            if deck is None:
                raise NotInEpoch("Expected an open epoch. Got none: a worker's deal() opens the next.")
            if not deck.is_done:
                raise SkippedSamples(
                    f"Expected every batch of epoch {deck.epoch.number} to be observed or skipped. Got some that are "
                    f"not: {len(deck.out)} are with workers, "
                    f"{'more' if deck.has_more else 'none'} are still to be dealt."
                )
            self._end(deck)

    def commit(self) -> None:
        """Write where the run stands to its store, also within an epoch."""
        with self._uninterrupted:
            self.pruner.take_over()
            self.pruner.commit()

    def state_dict(self) -> dict[str, Any]:
        """Return where the dealer and its run stand, also within an epoch, for a checkpoint beside the model.

        It holds dicts, lists, numbers, strings and bytes only. Batches that are with workers are not in it: they are
        dealt again.
        """
        with self._uninterrupted:
            self.pruner.take_over()
            return {
                "format": FORMAT,
                "batch_size": self.batch_size,
                "skipped": [list(pair) for pair in sorted(self._skipped.items())],
                "staleness": [list(pair) for pair in sorted(self._staleness.items())],
                "newest": self._newest,
                "run": self.pruner.state_dict(),
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where :meth:`state_dict` stood.

        What was with workers then, and all that was reported later, is dealt again; reports of earlier deals do not
        count. Raises :class:`PrunedataError` if the state is of another run, and changes nothing then.
        """
        if (
            not isinstance(state, dict)
            or not isinstance(state.get("run"), dict)
            or not _is(state.get("format"), FORMAT)
        ):
            raise PrunedataError(f"Expected what a dealer's state_dict() returned. Got {type(state).__name__}.")
        if not _is(state.get("batch_size"), self.batch_size):
            raise PrunedataError(
                f"Expected the state of a dealer with batch_size={self.batch_size}. Got one with "
                f"batch_size={shown(state.get('batch_size'))}, whose batches are others."
            )
        skipped = _pairs(state, "skipped", 1, self.batch_size)
        staleness = _pairs(state, "staleness", 1)
        newest = integer("the newest version", state.get("newest"), 0)
        with self._uninterrupted:
            self.pruner.load_state_dict(state["run"])
            self._skipped, self._staleness, self._newest = skipped, Counter(staleness), newest

    def __reduce__(self) -> Never:
        raise TypeError(
            "Expected a Dealer to stay the only one of its run. Got a copy or a pickle of it: call it in the process "
            "that has it, as through prunedata.adapters.ray, or save state_dict()."
        )

    def forget(self) -> None:
        """Drop all deals: the run was loaded from a state. Their batches are dealt again, under new tickets."""
        with self._uninterrupted:
            self._deck, self._skipped = None, {}

    # -- within

    @property
    def _out(self) -> dict[str, Deal]:
        return {} if self._deck is None else self._deck.out

    def _find(self, deal: Deal | str) -> Deal | Receipt:
        """Return the deal of a report; or the receipt of one that doesn't count, as no worker has its deal."""
        ticket = deal.ticket if isinstance(deal, Deal) else deal
        return self._out.get(ticket) or Receipt(False, why_void(self._deck, ticket))

    def _open(self) -> Deck:
        if self._deck is None:
            self.pruner.take_over()
            epoch = self.pruner.begin_epoch()
            if self._skipped:
                self.pruner.skip(sum(self._skipped.values()))
            self._deck = Deck(epoch, self.batch_size, self._skipped)
        return self._deck

    def _latest(self, version: int | None, newest: int | None) -> int:
        """Return the newest version of the weights by a report; raise if its two numbers make no sense."""
        if version is None:
            if newest is not None:
                raise PrunedataError(
                    f"Expected version beside newest, that of the weights that made the losses. Got newest={newest!r}."
                )
            return self._newest
        made = integer("version", version, 0)
        latest = max(self._newest, made) if newest is None else integer("newest", newest, 0)
        if latest < made:
            raise PrunedataError(
                f"Expected newest, the version of the weights now, to be at least version={made}. Got {latest}."
            )
        return latest

    def _settle(self, deck: Deck, ticket: str) -> None:
        del deck.out[ticket]
        if deck.is_done and self.auto_end:
            self._end(deck)

    def _end(self, deck: Deck) -> None:
        self.pruner.take_over()
        if deck.reads:
            deck.epoch.apply_weights()
        try:
            self.pruner.end_epoch()
        finally:  # it may have ended although a commit failed, or a warning was made an error
            if self.pruner.next_epoch != deck.epoch.number:
                self._deck = None
                self._skipped.clear()


class _Watch(Adapter):
    """Keeps the run to one dealer, and drops its deals when the run is loaded from a state."""

    key = "dealer"
    by_weight = True

    def __init__(self, dealer: Dealer) -> None:
        self.dealer = dealer

    def __reduce__(self) -> Never:
        self.dealer.__reduce__()

    def forget(self) -> None:
        self.dealer.forget()


def _checked(losses: Any, ids: Ids) -> Recorded:
    """Return one finite loss for each id, shape (n,). Checked at once, so that the worker can correct its report."""
    array = plain_losses(losses, ids.size)
    if array.shape != ids.shape:
        raise LossError(f"Expected a loss for each of the {ids.size} ids of the deal. Got shape {array.shape}.")
    with np.errstate(invalid="ignore", over="ignore"):
        total = array.sum(dtype=np.float64)
    if not np.isfinite(total):
        odd = ~np.isfinite(array)
        got = f"{array[odd][:5].tolist()} for the samples {ids[odd][:5].tolist()}" if odd.any() else "a sum too large"
        raise LossError(
            f"Expected finite losses, as a mean with others finds no hits. Got {got}: skip the deal, "
            "by dealer.skip(deal), or lower the learning rate."
        )
    return array


def _pairs(state: dict[str, Any], name: str, least_value: int, most: int = LARGEST) -> dict[int, int]:
    """Return pairs of integers that :meth:`Dealer.state_dict` saved. Raises :class:`PrunedataError` for all else."""
    try:
        pairs = [(key, value) for key, value in state[name]]
    except (LookupError, TypeError, ValueError) as error:
        raise PrunedataError(
            f"Expected pairs of numbers as {name} in a dealer's state. Got {shown(state.get(name))}."
        ) from error
    return {integer(name, key, 0): integer(name, value, least_value, most) for key, value in pairs}


def _is(value: object, number: int) -> bool:
    """Whether a value of a state, which may hold anything, is this number."""
    return type(value) is int and value == number
