"""One run: which samples each epoch trains on, what came of it, and where the run stands."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from prunedata.block import Block
from prunedata.checks import whole
from prunedata.cost import number_kept, number_pruned
from prunedata.counts import Counts, Ids, Losses, Means, SampleCounts, Sizes, Tally, find_hits
from prunedata.epoch import Delivery, Epoch, Weights, read_only, select
from prunedata.errors import NotInEpoch, PrunedataError
from prunedata.extras import Extras, High
from prunedata.meter import Meter
from prunedata.policy import Array, DroppingCount, Known, Policy, Watcher, describe
from prunedata.schedule import Schedule
from prunedata.state import check_same_run, pack, unpack, warn_if_idle
from prunedata.store import RunStore, StoreLike

__all__ = ["Pruner"]


class Pruner:
    """Prunes a data set epoch by epoch by the losses that it is fed (Algorithms 1 and 2).

    Parameters
    ----------
    samples : int
        Samples in the data set; their ids are ``0 .. samples - 1``.
    schedule : Schedule
        When to prune.
    prune : int or float
        PruningNum: how many samples a pruned epoch leaves out, or what fraction of them.
    policy : Policy
        Which samples to prune.
    store : path, URL or zarr store, optional
        Where the run is kept. Without it the run lives in memory.
    seed : int
        Decides ties and orders.
    batch_size : int, optional
        Round the kept samples of pruned epochs up to whole batches, so that none ends with a tiny batch.
    resume : bool
        Go on with the run in ``store``; if nothing is there, begin. Without it an existing run is an error.
    observe_only : bool
        Prune nothing, and keep all counts as ever: to see on a live run, without risk, what pruning would save.
    classes : int, optional
        Classes to tell apart, at least 2. The run then counts for each sample the visits with a loss above
        ``ln(classes)``, that of a blind guess, in the array ``high`` (see :attr:`arrays`).

    Raises
    ------
    PrunedataError
        If an argument makes no sense, or the store is damaged, foreign, or of another run.

    Warns
    -----
    NeverPrunesWarning
        If schedule and amount never prune anything, and nobody said ``observe_only``.

    Examples
    --------
    >>> import numpy as np
    >>> from prunedata import Pruner, Schedule
    >>> pruner = Pruner(100, Schedule(4, window=4, start=2, block=2, pruned_per_block=1), prune=0.25)
    >>> for epoch in pruner.epochs():
    ...     for ids in epoch.batches(32):
    ...         pruner.observe(ids, np.cos(ids))  # a loss for each id
    >>> [record["kept"] for record in pruner.history]
    [100, 100, 75, 100]
    """

    def __init__(
        self,
        samples: int,
        schedule: Schedule,
        *,
        prune: int | float,
        policy: Policy = DroppingCount(),  # noqa: B008 (frozen)
        store: StoreLike | None = None,
        seed: int = 0,
        batch_size: int | None = None,
        resume: bool = False,
        observe_only: bool = False,
        classes: int | None = None,
    ) -> None:
        if not isinstance(schedule, Schedule):
            raise PrunedataError(f"Expected a Schedule. Got {schedule!r}.")
        self.samples = whole("samples", samples, 1)
        self.seed = whole("seed", seed, -(1 << 63), (1 << 64) - 1)
        self.prune = number_pruned(self.samples, prune)
        self.batch_size = None if batch_size is None else whole("batch_size", batch_size, 1)
        describe(policy)  # refuses what is none
        self.policy = policy
        self._kept_when_pruned = number_kept(self.samples, self.prune, self.batch_size)
        self._original = self._schedule = schedule
        self.observe_only = bool(observe_only)
        self.classes = None if classes is None else whole("classes", classes, 2)
        if not self.observe_only:
            warn_if_idle(schedule, self.samples, self._kept_when_pruned)

        self.history: list[dict[str, Any]] = []
        """A record of each finished epoch: ``number``, ``pruned``, ``kept``, ``observed`` (visits), ``seconds`` of
        training, ``mean_loss``, and ``overhead``, the seconds spent in this library. With ``observe_only`` also
        ``would_prune``, the samples that would have been pruned."""
        self.sources: list[Callable[[], None]] = []
        """For adapters that hold losses back: each is called before the losses so far are reckoned with."""
        self.listeners: list[Callable[[Epoch], None]] = []
        """For adapters whose readers live in other processes: each is called with every epoch that is begun."""
        self.exchange: Callable[[Tally, dict[str, Array]], None] | None = None
        """For adapters of several processes: merges over all of them, in place, the epoch's tally and the arrays of
        policies by name, each of shape (samples,)."""

        self._known = SampleCounts(self.samples, schedule.longest_window, schedule.epochs)
        high = [] if self.classes is None else [High(self.classes, schedule.epochs)]
        self._extras = Extras(self.samples, [*high, *([policy] if isinstance(policy, Watcher) else [])])
        self._tally = Tally(self.samples)
        self._block = Block(self.samples, self._work)
        self._everything = read_only(np.ones(self.samples, dtype=np.bool_))
        self._next = 0
        self._current: Epoch | None = None
        self._record: Callable[[Any, Any], None] = self._refuse
        self._meter = Meter()
        self._delivery = Delivery()
        self._store = self._open_store(store, resume)

    # -- the run

    @property
    def schedule(self) -> Schedule:
        """The schedule in force, after any :meth:`rewindow`."""
        return self._schedule

    @property
    def next_epoch(self) -> int:
        """Number of the epoch that is open, or else of the next to begin."""
        return self._next

    @property
    def current(self) -> Epoch:
        """The open epoch. Raises :class:`NotInEpoch` if none is."""
        if self._current is None:
            raise NotInEpoch(
                "Expected an open epoch. Got none: loop over `for epoch in pruner.epochs():`, "
                "or call begin_epoch() and end_epoch()."
            )
        return self._current

    @property
    def counts(self) -> Counts:
        """DroppingCount of each sample, shape (samples,), the open epoch included. A copy."""
        if self._current is None:
            return self._known.counts.copy()
        self._flush()
        return self._known.counts_with(self._tally, reset=self._schedule.resets(self._next))

    @property
    def hits(self) -> Counts:
        """How often each sample was hit in all finished epochs, shape (samples,). A copy."""
        return self._known.hits.copy()

    @property
    def visits(self) -> Counts:
        """How often each sample was observed in all finished epochs, shape (samples,). A copy."""
        return self._known.visits.copy()

    @property
    def arrays(self) -> dict[str, Array]:
        """What else is kept of each sample, after all finished epochs: arrays of shape (samples,) by name. Copies.

        Those of the policy, as ``loss``, and with ``classes`` the array ``high``: visits with a high loss.
        """
        return {name: array.copy() for name, array in self._extras.arrays.items()}

    def epochs(self) -> Iterator[Epoch]:
        """Yield the epochs of the run, from where it stands. Each is committed when the loop advances.

        Raises
        ------
        SkippedSamples
            At the end of an epoch in which kept samples were not observed.
        """
        if self._current is not None and self._is_complete():
            self.end_epoch()
        while self._current is not None or self._next < self._schedule.epochs:
            yield self.begin_epoch()
            self.end_epoch()

    def begin_epoch(self) -> Epoch:
        """Open the next epoch, or go on with the one that is open, and return it."""
        started = perf_counter()
        if self._current is not None:
            self._flush()
            unseen = self._current.keep & (self._tally.visits == 0)
            self._current = replace(self._current, remaining=read_only(unseen))
        else:
            if self._next >= self._schedule.epochs:
                raise NotInEpoch(f"Expected one of {self._schedule.epochs} epochs to begin. Got none: all are done.")
            self._tally.clear()
            self._extras.begin()
            self._meter = Meter()
            self._current = self._plan()
        self._delivery = Delivery()
        self._block.start()
        self._record = self._block.add
        for listener in self.listeners:
            listener(self._current)
        self._meter.overhead += perf_counter() - started
        self._meter.start()
        return self._current

    def observe(self, ids: Any, losses: Any) -> None:
        """Record the losses of one batch (Algorithm 1, lines 4-8).

        Parameters
        ----------
        ids : array of int, shape (n,)
            Which samples. One that repeats counts each time. Pruned samples may be observed too.
        losses : array of float, shape (n,)
            Their losses, one per sample. Copied.

        Raises
        ------
        LossError
            If ids or losses have a wrong shape, dtype or length; if an id is unknown or a loss not finite. Values
            are checked for an epoch's first batch at once and then block by block (65,536 losses); the error
            names the batch, which is left out, and every other batch is recorded.
        NotInEpoch
            If no epoch is open.
        """
        self._record(ids, losses)

    def end_epoch(self) -> None:
        """Close the open epoch and commit it.

        Raises
        ------
        SkippedSamples
            If kept samples were not observed. The epoch stays open: observe them, or mend the loop.
        """
        epoch, started = self.current, perf_counter()
        seconds = self._meter.elapsed
        self._flush()
        own = self._tally.observed
        if self.exchange is not None:
            self.exchange(self._tally, self._extras.open)
        self._tally.check()
        self._delivery.check(epoch, self._tally, needs_losses=self.policy.needs_losses)
        self._known.add(self._tally, reset=self._schedule.resets(epoch.number))
        self._extras.finish()
        record = {
            "number": epoch.number,
            "pruned": epoch.pruned,
            "kept": epoch.kept,
            "observed": self._tally.observed,
            "seconds": seconds,
            "mean_loss": self._meter.loss_sum / own if own else None,
            "overhead": self._meter.overhead + perf_counter() - started,
        }
        if self.observe_only:
            would = self._schedule.prunes(epoch.number)
            record["would_prune"] = self.samples - self._kept_when_pruned if would else 0
        self.history.append(record)
        self._current, self._record = None, self._refuse
        self._next += 1
        self.commit()
        record["overhead"] = self._meter.overhead + perf_counter() - started

    def rewindow(self, window: int) -> None:
        """Let a new window of ``window`` epochs begin with the next epoch; the store records it."""
        self._schedule = self._schedule.rewindow(self._next + (self._current is not None), window)
        self._known.widen(min(self._schedule.longest_window, self._schedule.epochs))
        self.commit()

    # -- persistence

    def commit(self) -> None:
        """Write where the run stands to its store, if it has one; at any time, also within an epoch."""
        if self._store is not None:
            self._store.write(*self._snapshot())

    def state_dict(self) -> dict[str, Any]:
        """Return where the run stands, also within an epoch, to be saved in a checkpoint beside the model.

        It holds dicts, lists, numbers, strings and bytes only, so that any format can save it
        (``torch.load`` reads it with ``weights_only=True``).
        """
        return pack(*self._snapshot())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where :meth:`state_dict` stood. Raises :class:`PrunedataError` if it is of another run."""
        self._restore(*unpack(state))

    def _snapshot(self) -> tuple[dict[str, Any], dict[str, Array]]:
        self._flush()
        arrays: dict[str, Array] = dict(vars(self._known))
        arrays |= self._extras.standing(within=self._current is not None)
        if self._current is not None:
            arrays["tally"] = self._tally.packed
        state = {
            "run": self._describe(),
            "schedule": self._schedule.to_dict(),
            "epoch": self._next,
            "open": self._current is not None,
            "complete": self._current is not None and self._is_complete(),
            "excused": self._delivery.excused,
            "observed": self._tally.observed,
            "meter": self._meter.to_dict(),
            "history": self.history,
        }
        return state, arrays

    def _restore(self, state: dict[str, Any], arrays: dict[str, Array]) -> None:
        check_same_run(state, arrays, self._describe(), self._extras.wanted(within=state["open"]))
        # What can be refused is made first: a state that is refused changes nothing.
        schedule, meter = Schedule.from_dict(state["schedule"]), Meter(**state["meter"])
        self._next = whole("the state's epoch", state["epoch"], 0, schedule.epochs - state["open"])
        self._schedule, self._meter = schedule, meter
        for name in vars(self._known):
            setattr(self._known, name, arrays[name].copy())
        self._extras.restore(arrays, within=state["open"])
        self.history = [dict(record) for record in state["history"]]
        self._delivery = Delivery(excused=state["excused"], exhausted=state["complete"])
        self._record = _discard
        for drain in self.sources:  # what adapters hold back is of the epoch that is left
            drain()
        self._block.start()
        self._record, self._current = self._refuse, None
        if state["open"]:
            self._tally.packed[:] = arrays["tally"]
            self._tally.observed = state["observed"]
            self._current = self._plan()

    def _open_store(self, location: StoreLike | None, resume: bool) -> RunStore | None:
        if location is None:
            if resume:
                raise PrunedataError("Expected a store to resume from. Got resume=True without store=.")
            return None
        store = RunStore(location)
        found = store.read() if resume else None
        if found is None:
            store.create(self._snapshot()[0])
        elif store.generation:
            self._restore(*found)
        else:  # created, but stopped before its first epoch was done
            check_same_run(found[0], None, self._describe(), {})
        return store

    def _describe(self) -> dict[str, Any]:
        # Named only where they are in use: a run recorded before they were known is the same run without them.
        options = {"observe_only": self.observe_only, "classes": self.classes}
        return {
            "samples": self.samples,
            "schedule": self._original.to_dict(),
            "prune": self.prune,
            "policy": describe(self.policy),
            "seed": self.seed,
            "batch_size": self.batch_size,
            **{name: value for name, value in options.items() if value},
        }

    # -- for adapters

    def kept_in(self, epoch: int) -> int:
        """How many samples epoch number ``epoch`` trains on; known before it begins."""
        return self._kept_when_pruned if self._prunes(epoch) else self.samples

    def excuse(self, samples: int) -> None:
        """Say how many kept samples the loader will not deliver by the user's own settings, as ``drop_last``."""
        self._delivery.excused = samples

    def note_delivered(self, samples: int, *, exhausted: bool = False) -> None:
        """Say what the loader has delivered in this epoch so far, for the reckoning at its end.

        ``exhausted`` when it has come to its end, where training time stops too.
        """
        self._delivery.delivered = samples
        if exhausted:
            self._delivery.exhausted = True
            self._meter.stop()

    @property
    def overhead(self) -> float:
        """Seconds spent in this library in the open or last epoch so far."""
        return self._meter.overhead

    @property
    def meter(self) -> Meter:
        """The running sums of the open or last epoch, for adapters to charge their own overhead to."""
        return self._meter

    # -- the epoch

    def _prunes(self, epoch: int) -> bool:
        return not self.observe_only and self._schedule.prunes(epoch)

    def _plan(self) -> Epoch:
        number, keep = self._next, self._everything
        weights: Weights | None = None
        pruned, amount = self._prunes(number), self.samples - self._kept_when_pruned
        if pruned and amount:
            known = Known(**vars(self._known), arrays=self._extras.arrays, pruned=amount)
            keep, weights = select(self.policy, known, seed=self.seed, epoch=number)
        return Epoch(number, pruned, keep, self.kept_in(number), keep, self.seed, weights)

    def _work(self, ids: Ids, losses: Losses, sizes: Sizes, means: Means) -> None:
        started = perf_counter()
        self._tally.add(ids, find_hits(losses, sizes, means, self.policy.tolerance))
        self._extras.add(ids, losses)
        # One after the other: the sum must not depend on where the blocks were cut.
        self._meter.loss_sum = float(np.cumsum(np.append(self._meter.loss_sum, means * sizes))[-1])
        self._meter.overhead += perf_counter() - started

    def _flush(self) -> None:
        if self._current is not None:
            for drain in self.sources:
                drain()
        self._block.flush()

    def _is_complete(self) -> bool:
        self._flush()
        return self._delivery.is_complete(self.current, self._tally)

    def _refuse(self, ids: Any, losses: Any) -> None:
        _ = self.current
        raise NotInEpoch("Expected begin_epoch() before observe() in a run that was just restored.")


def _discard(ids: Any, losses: Any) -> None:
    """Record nothing."""
