"""The epochs of a run: what each trains on, and what came of it."""

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any, Literal

import numpy as np

from prunedata.checks import whole
from prunedata.errors import NotInEpoch, PrunedataError
from prunedata.findings.advice import Advice
from prunedata.plan.cost import number_pruned
from prunedata.plan.schedule import Schedule
from prunedata.policies.protocol import Known, Policy, Watcher
from prunedata.run.block import Block
from prunedata.run.counts import SampleCounts, Tally, find_hits
from prunedata.run.epoch import Delivery, Epoch, read_only, select
from prunedata.run.extras import Extras, High
from prunedata.run.meter import Meter
from prunedata.run.pruning import Pruning, policy_of
from prunedata.run.state import warn_of_advice
from prunedata.types import Array, Counts, Ids, Means, Recorded, Sizes, Weights

__all__ = ["Run", "discard"]


class Run:
    """A run without a place to be kept in. :class:`prunedata.Pruner` has the parameters and the rest."""

    def __init__(
        self,
        samples: int,
        schedule: Schedule,
        *,
        prune: int | float,
        policy: Policy | Literal["auto"],
        seed: int,
        batch_size: int | None,
        observe_only: bool,
        classes: int | None,
    ) -> None:
        if not isinstance(schedule, Schedule):
            raise PrunedataError(f"Expected a Schedule. Got {schedule!r}.")
        self.samples = whole("samples", samples, 1)
        self.seed = whole("seed", seed, -(1 << 63), (1 << 64) - 1)
        self.prune = number_pruned(self.samples, prune)
        self.batch_size = None if batch_size is None else whole("batch_size", batch_size, 1)
        self.policy = policy_of(policy, classes)
        self.observe_only = bool(observe_only)
        self.classes = None if classes is None else whole("classes", classes, 2)
        self._pruning = Pruning(
            self.samples, schedule, self.prune, self.batch_size, auto=policy == "auto", observe_only=self.observe_only
        )

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
        self.meter = Meter()
        """The running sums of the open or last epoch, for adapters to charge their own overhead to."""

        self._known = SampleCounts(self.samples, schedule.longest_window, schedule.epochs)
        high = [] if self.classes is None else [High(self.classes, schedule.epochs)]
        self._extras = Extras(self.samples, [*high, *([self.policy] if isinstance(self.policy, Watcher) else [])])
        self._tally = Tally(self.samples)
        self._block = Block(self.samples, self._work)
        self._everything = read_only(np.ones(self.samples, dtype=np.bool_))
        self._next = 0
        self._current: Epoch | None = None
        self._record: Callable[[Any, Any], None] = self._refuse
        self._delivery = Delivery()

    # -- where it stands

    @property
    def schedule(self) -> Schedule:
        """The schedule in force, after any :meth:`rewindow`."""
        return self._pruning.schedule

    @property
    def advice(self) -> Advice | None:
        """With ``policy="auto"`` what was advised once enough had been watched, and why; None before."""
        return self._pruning.advice

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
        return self._known.counts_with(self._tally, reset=self.schedule.resets(self._next))

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

    def begin_epoch(self) -> Epoch:
        """Open the next epoch, or go on with the one that is open, and return it."""
        started = perf_counter()
        self._flush()
        self._delivery = Delivery()  # before an epoch is opened: Ctrl-C between the two must not leave the last one's
        if self._current is not None:
            unseen = self._current.keep & (self._tally.visits == 0)
            self._current = replace(self._current, remaining=read_only(unseen))
        else:
            if self._next >= self.schedule.epochs:
                raise NotInEpoch(f"Expected one of {self.schedule.epochs} epochs to begin. Got none: all are done.")
            self._tally.clear()
            self._extras.begin()
            self.meter = Meter()
            self._current = self._select()
        self._block.start()
        self._record = self._block.add
        for listener in self.listeners:
            listener(self._current)
        self.meter.overhead += perf_counter() - started
        self.meter.start()
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
        seconds = self.meter.elapsed
        self._flush()
        own = self._tally.observed
        if self.exchange is not None:
            self.exchange(self._tally, self._extras.open)
        self._tally.check()
        self._delivery.check(epoch, self._tally, needs_losses=self.policy.needs_losses)
        self._known.add(self._tally, reset=self.schedule.resets(epoch.number))
        self._extras.finish()
        record = {
            "number": epoch.number,
            "pruned": epoch.pruned,
            "kept": epoch.kept,
            "observed": self._tally.observed,
            "seconds": seconds,
            "mean_loss": self.meter.loss_sum / own if own else None,
            "overhead": self.meter.overhead + perf_counter() - started,
        }
        if self.observe_only:
            record["would_prune"] = self._pruning.amount if self._pruning.would_prune(epoch.number) else 0
        self.history.append(record)
        self._current, self._record = None, self._refuse
        self._next += 1
        advised = self._pruning.ask(self._known, self._extras.arrays.get("high"), self._next)
        if advised:
            self._known.widen(self._pruning.longest_window)
        self.commit()
        record["overhead"] = self.meter.overhead + perf_counter() - started
        if advised and self.advice is not None and self.advice.verdict != "prune":
            warn_of_advice(self.advice.evidence)

    def commit(self) -> None:
        """Write where the run stands, if it is kept anywhere."""

    # -- for adapters

    def kept_in(self, epoch: int) -> int:
        """How many samples epoch number ``epoch`` trains on; known before it begins."""
        return self._pruning.kept_in(epoch)

    def excuse(self, samples: int) -> None:
        """Say how many more kept samples of the open epoch will not be observed, beside what an adapter leaves out.

        For the loop that drops a batch, because its losses are not finite or it isn't full. It adds up.
        """
        self._delivery.excused += samples

    def note_left_out(self, samples: int) -> None:
        """Say how many kept samples the loader will not deliver by the user's own settings, as ``drop_last``."""
        self._delivery.left_out = samples

    def note_delivered(self, samples: int, *, exhausted: bool = False) -> None:
        """Say what the loader has delivered in this epoch so far, for the reckoning at its end.

        ``exhausted`` when it has come to its end, where training time stops too.
        """
        self._delivery.delivered = samples
        if exhausted:
            self._delivery.exhausted = True
            self.meter.stop()

    @property
    def overhead(self) -> float:
        """Seconds spent in this library in the open or last epoch so far."""
        return self.meter.overhead

    # -- the epoch

    def _select(self) -> Epoch:
        number, keep = self._next, self._everything
        weights: Weights | None = None
        pruned, amount = self._pruning.prunes(number), self._pruning.amount
        if pruned and amount:
            known = Known(**vars(self._known), arrays=self._extras.arrays, pruned=amount)
            keep, weights = select(self.policy, known, seed=self.seed, epoch=number)
        return Epoch(number, pruned, keep, self.kept_in(number), keep, self.seed, weights)

    def _work(self, ids: Ids, losses: Recorded, sizes: Sizes, means: Means) -> None:
        started = perf_counter()
        self._tally.add(ids, find_hits(losses, sizes, means, self.policy.tolerance))
        self._extras.add(ids, losses, sizes, means)
        # One after the other: the sum must not depend on where the blocks were cut.
        sums = means * sizes
        sums[0] += self.meter.loss_sum
        self.meter.loss_sum = float(sums.cumsum()[-1])
        self.meter.overhead += perf_counter() - started

    def _flush(self) -> None:
        if self._current is not None:
            for drain in self.sources:
                drain()
        self._block.flush()

    def _is_complete(self) -> bool:
        self._flush()
        if self.exchange is not None and self._delivery.exhausted:
            return True  # what other processes have observed is not known here
        return self._delivery.is_complete(self.current, self._tally)

    def _refuse(self, ids: Any, losses: Any) -> None:
        _ = self.current
        raise NotInEpoch("Expected begin_epoch() before observe() in a run that was just restored.")


def discard(ids: Any, losses: Any) -> None:
    """Record nothing."""
