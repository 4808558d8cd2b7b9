"""The dealer: it owns a run, deals the kept samples of each epoch to workers, and takes their losses back."""

import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Never

from prunedata.checks import integer, real
from prunedata.dealing.deal import Deal, Receipt, Wait, until_done
from prunedata.dealing.deck import Batch, Deck
from prunedata.dealing.reported import checked_losses
from prunedata.dealing.staleness import Staleness
from prunedata.dealing.state import DealerState
from prunedata.dealing.tickets import Tickets
from prunedata.errors import NotInEpoch, PrunedataError, SkippedSamples
from prunedata.run.adapter import Adapter
from prunedata.run.epoch import read_only
from prunedata.run.pruner import Pruner
from prunedata.uninterrupted import Uninterrupted

__all__ = ["Dealer"]


class Dealer:
    """Deals the kept samples of each epoch to whoever asks, and records each of them exactly once.

    For training without common steps: workers that come and go, parameter servers, actors. Workers ask for a batch
    with :meth:`deal` and give its losses back with :meth:`observe`. If a worker dies, :meth:`lost` or ``timeout``
    lets others have its batches. When every batch is accounted for, the epoch ends and is committed.

    It may be called from several threads. A copy or pickle of it would be a second owner of the run, so put it in
    one process and let others call it there, as ``prunedata.adapters.ray`` does.

    Parameters
    ----------
    pruner : Pruner
        The run. From now on the dealer begins and ends its epochs, and observes.
    batch_size : int
        Samples in a batch; the last of an epoch may be smaller.
    timeout : float, optional
        Seconds after which a batch that was not reported is dealt again. By default never: call :meth:`lost`.
    auto_end : bool
        End an epoch as soon as every batch is accounted for. With False it waits for :meth:`end_epoch`, and workers
        that ask are told to wait: save the model first, then end the epoch, as that commits it to the store.
    clock : callable
        Seconds, for ``timeout``.

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
        timeout: float | None = None,
        auto_end: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(pruner, Pruner):
            raise PrunedataError(f"Expected a Pruner. Got {type(pruner).__name__}.")
        self.pruner, self.batch_size = pruner, integer("batch_size", batch_size, 1)
        self.timeout = None if timeout is None else real("timeout", timeout, 0, above=True)
        self.auto_end, self._clock = bool(auto_end), clock
        # Steps happen whole, as the pruner's own do: a signal's handler that saves must not see half of one.
        self._uninterrupted = Uninterrupted()
        self._deck: Deck | None = None
        self._skipped: dict[int, int] = {}
        self._staleness = Staleness()
        self._tickets = Tickets()
        if pruner.attach(_Watch(self)).dealer is not self:
            raise PrunedataError("Expected a Pruner without a dealer. Got one that has one: a run has one owner.")

    # -- where it stands

    @property
    def is_finished(self) -> bool:
        """Whether the run has no epoch left."""
        return self._deck is None and self.pruner.next_epoch >= self.pruner.schedule.epochs

    @property
    def is_epoch_done(self) -> bool:
        """Whether an epoch is open of which every batch is accounted for. With ``auto_end`` it then ends by itself."""
        deck = self._deck
        return deck is not None and deck.is_done

    @property
    def outstanding(self) -> dict[Hashable, int]:
        """How many samples each worker has been dealt and has not reported."""
        with self._uninterrupted:
            found: dict[Hashable, int] = {}
            for batch in self._out().values():
                found[batch.worker] = found.get(batch.worker, 0) + batch.ids.size
            return found

    @property
    def staleness(self) -> dict[int, int]:
        """How many reports were how stale, of those that named a version. See :meth:`observe`."""
        with self._uninterrupted:
            return dict(sorted(self._staleness.counts.items()))

    # -- for workers

    def deal(self, worker: Hashable) -> Deal | Wait | None:
        """Give a worker its next batch. A worker may have several at once.

        Parameters
        ----------
        worker : hashable
            Its name, as a str or an int. Nobody has to say before that a worker comes.

        Returns
        -------
        Deal, Wait or None
            A batch; or that there is none until others have reported theirs; or None, when the run is done.
        """
        if not isinstance(worker, Hashable):
            raise PrunedataError(f"Expected the name of a worker, as a str or an int. Got {worker!r}.")
        with self._uninterrupted:
            self._take_back_late_ones()
            while not self.is_finished:
                deck = self._open()
                if deck.has_more:
                    return self._dealt(deck, worker)
                if not (deck.is_done and self.auto_end):
                    return Wait(deck.epoch.number, sum(one.ids.size for one in deck.out.values()))
                self._end()  # an epoch that was restored when it was done already
            return None

    def deal_many(self, worker: Hashable, most: int) -> list[Deal] | Wait | None:
        """Give a worker its next batches, up to ``most`` of one epoch: one call in place of several.

        At the end of an epoch the others wait for whoever has several batches left: let ``most`` be small beside the
        batches that a worker gets in an epoch.

        Returns
        -------
        list of Deal, Wait or None
            At least one batch; or as :meth:`deal`.
        """
        most = integer("most", most, 1)
        with self._uninterrupted:
            first = self.deal(worker)
            if not isinstance(first, Deal):
                return first
            deck, found = self._open(), [first]
            while len(found) < most and deck.has_more:
                found.append(self._dealt(deck, worker))
            return found

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
            The version of the weights now, to which the gradients of this batch were given. Staleness is ``newest``
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
            place = self._tickets.read(deal)
            batch = self._out().get(place)
            if batch is None:
                return self._tickets.refuse(place)
            good = checked_losses(losses, batch.ids)
            measured = self._staleness.measure(version, newest)
            self.pruner.take_over()
            self.pruner.record(good, batch.ids)
            self._staleness.add(measured)
            if isinstance(deal, Deal) and deal.was_read and self._deck is not None:
                self._deck.reads[:] = [True]  # a copy of it was, in the worker's process
            self._settle(place)
            return Receipt(True, "recorded")

    def observe_many(
        self, reports: Iterable[tuple[Deal | str, Any]], *, version: int | None = None, newest: int | None = None
    ) -> list[Receipt]:
        """Record the losses of several batches, each as :meth:`observe` does: pairs of a deal and its losses.

        All are checked first: if one raises, none is recorded. Versions are those of all of them.
        """
        with self._uninterrupted:
            given = [(deal, losses, self._tickets.read(deal)) for deal, losses in reports]
            for _, losses, place in given:
                if place in self._out():
                    checked_losses(losses, self._out()[place].ids)
            self._staleness.measure(version, newest)
            return [self.observe(deal, losses, version=version, newest=newest) for deal, losses, _ in given]

    def skip(self, deal: Deal | str) -> Receipt:
        """Say that a batch will not be observed, for example because its losses are not finite. It is not dealt again.

        Returns a receipt as :meth:`observe` does.
        """
        with self._uninterrupted:
            place = self._tickets.read(deal)
            batch = self._out().get(place)
            if batch is None:
                return self._tickets.refuse(place)
            self.pruner.skip(batch.ids.size)
            self._skipped[batch.number] = batch.ids.size
            self._settle(place)
            return Receipt(True, "skipped")

    def lost(self, worker: Hashable) -> int:
        """Take back what a worker has, to deal it to others: it died, or it leaves.

        Returns
        -------
        int
            How many samples it had. If it reports them later, that is refused.
        """
        return self._take_back(lambda batch: batch.worker == worker)

    # -- the epochs

    def end_epoch(self) -> None:
        """End the open epoch and commit it. For dealers with ``auto_end=False``.

        Raises
        ------
        NotInEpoch
            If no epoch is open.
        SkippedSamples
            If not every batch is accounted for. The epoch stays open.
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
            self._end()

    def commit(self) -> None:
        """Write where the run stands to its store, also within an epoch."""
        with self._uninterrupted:
            self.pruner.take_over()
            self.pruner.commit()

    def state_dict(self) -> dict[str, Any]:
        """Where the dealer and its run stand, also within an epoch: plain values, for a checkpoint beside the model."""
        with self._uninterrupted:
            self.pruner.take_over()
            return DealerState(self.batch_size, self._skipped, self._staleness, self.pruner.state_dict()).to_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where :meth:`state_dict` stood.

        What was with workers then, and all that was reported later, is dealt again; reports of earlier deals are
        refused. Raises :class:`PrunedataError` if the state is of another run, and changes nothing then.
        """
        found = DealerState.from_dict(state, self.batch_size)
        with self._uninterrupted:
            self.pruner.load_state_dict(found.run)
            self._staleness, self._skipped = found.staleness, found.skipped

    def __reduce__(self) -> Never:
        raise TypeError(
            "Expected a Dealer to stay the only one of its run. Got a copy or a pickle of it: call it in the process "
            "that has it, as through prunedata.adapters.ray, or save state_dict()."
        )

    def forget(self) -> None:
        """Drop all deals: the run was loaded from a state. What was dealt is dealt again under new tickets."""
        with self._uninterrupted:
            self._deck, self._tickets = None, Tickets()
            self._skipped = {}

    # -- within

    def _open(self) -> Deck:
        if self._deck is None:
            self.pruner.take_over()
            epoch = self.pruner.begin_epoch()
            if self._skipped:
                self.pruner.skip(sum(self._skipped.values()))
            self._deck = Deck(epoch, self.batch_size, self._skipped)
        return self._deck

    def _out(self) -> dict[int, Batch]:
        return {} if self._deck is None else self._deck.out

    def _dealt(self, deck: Deck, worker: Hashable) -> Deal:
        number, ticket = self._tickets.new()
        batch, epoch = deck.deal(number, worker, self._clock()), deck.epoch
        return Deal(
            ticket=ticket,
            epoch=epoch.number,
            number=batch.number,
            ids=batch.ids,
            _weights=read_only(epoch.detached().factors(batch.ids)) if epoch.is_weighed else None,
            worker=worker,
            attempt=batch.attempt,
            _reads=deck.reads,
        )

    def _settle(self, place: int) -> None:
        deck = self._deck
        assert deck is not None
        deck.settle(place)
        if deck.is_done and self.auto_end:
            self._end()

    def _end(self) -> None:
        deck = self._deck
        assert deck is not None
        self.pruner.take_over()
        if deck.reads:
            deck.epoch.apply_weights()
        try:
            self.pruner.end_epoch()
        finally:  # it may have ended although a commit failed, or a warning was made an error
            if self.pruner.next_epoch != deck.epoch.number:
                self._deck = None
                self._skipped.clear()

    def _take_back_late_ones(self) -> None:
        if self.timeout is not None:
            before = self._clock() - self.timeout
            self._take_back(lambda batch: batch.since <= before)

    def _take_back(self, which: Callable[[Batch], bool]) -> int:
        with self._uninterrupted:
            places = [place for place, batch in self._out().items() if which(batch)]
            if not places or self._deck is None:
                return 0
            self._tickets.withdraw(places)
            return self._deck.put_back(places)


class _Watch(Adapter):
    """Keeps the run to one dealer, and tells it when the run is loaded behind its back."""

    key = "dealer"
    by_weight = True

    def __init__(self, dealer: Dealer) -> None:
        self.dealer = dealer

    def __reduce__(self) -> Never:
        raise TypeError(
            "Expected a Dealer to stay the only one of its run. Got a copy or a pickle of it: call it in the process "
            "that has it, as through prunedata.adapters.ray, or save state_dict()."
        )

    def forget(self) -> None:
        self.dealer.forget()
