"""The engine of a run: it opens an epoch, records its losses and closes it, each step whole or not at all."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import astuple, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from prunedata.checks import warn
from prunedata.counting.batches import plain_ids
from prunedata.counting.buffer import LossBuffer, Taken
from prunedata.counting.counts import SampleCounts, Tally
from prunedata.counting.guess import are_multiples, plain_labels
from prunedata.errors import LossError, NeverPrunesWarning, NotInEpoch, PrunedataError, SkippedSamples, UnweighedWarning
from prunedata.plan.onset import Figures, check_figure, find_onset
from prunedata.plan.schedule import Schedule
from prunedata.policies.agreement import agreement, sketch
from prunedata.run.adapter import Adapter, Delivery, together
from prunedata.run.epoch import Epoch, Role
from prunedata.run.group import Group
from prunedata.run.identity import Identity
from prunedata.run.ledger import Ledger
from prunedata.run.meter import EpochSums, Meter
from prunedata.run.open import OpenEpoch
from prunedata.run.options import RunOptions
from prunedata.run.pruning import Pruning
from prunedata.store.state import GUESS, LABEL, RunState
from prunedata.types import Arrays
from prunedata.uninterrupted import Uninterrupted

if TYPE_CHECKING:
    from prunedata.findings.advice import Advice
    from prunedata.store.run_store import RunStore

MULTIPLES = (
    "Expected losses without class weights. Got losses that are multiples of the cross-entropies of their logits, "
    "with one factor for each label, as cross_entropy(weight=...) returns them: classes of large weight would look "
    "wrong, and the mean would not be PyTorch's. Take weight= out of the loss, and pass observe(losses, "
    "weights=class_weights[targets]) behind a wrapped loader, or weight the losses in your own mean."
)


class Engine:
    """Run the epochs of a schedule and keep their results in a ledger."""

    def __init__(self, options: RunOptions) -> None:
        self.options = options
        self.identity = Identity(options.samples, options.seed, options.keys, follows=options.follow)
        self.pruning = Pruning(options, self.identity)
        self.ledger = Ledger(options)
        self.figures = Figures()
        self.meter, self.group = Meter(), Group()
        self.adapters: tuple[Adapter, ...] = ()  # in the order in which they were attached
        self.uninterrupted = Uninterrupted()
        self.buffer = LossBuffer(options.samples)
        self.opened: OpenEpoch | None = None
        self.store: RunStore | None = None
        self._failed = False  # whether a step failed in its middle
        self._tries = 8  # in how many more batches to look whether losses were multiplied by numbers of their labels
        self._resumed = False  # whether the run was restored and no epoch has begun since
        self.resumed_at: int | None = None  # the first epoch that has begun since the run was restored
        self._thread: int | None = None  # the thread that trains, as ``threading.get_ident``

    @property
    def now(self) -> OpenEpoch:
        """What was observed of the open epoch. Raises :class:`NotInEpoch` if none is open."""
        if self.opened is None:
            raise NotInEpoch(
                "Expected an open epoch. Got none: loop over `for epoch in pruner.epochs():`, "
                "or call begin_epoch() and end_epoch()."
            )
        return self.opened

    @property
    def is_recording(self) -> bool:
        """Whether an epoch is open, and has continued if it was restored."""
        return self.opened is not None and self.opened.restored is None and not self._failed

    @property
    def is_finished(self) -> bool:
        """Whether no epoch is left."""
        done = self.ledger.next_epoch >= self.pruning.schedule.epochs
        return self.opened is None and done and not self._failed

    # -- an epoch

    def begin(self) -> Epoch:
        """Open the next epoch, or continue the one that is open."""
        self._refuse_failed()
        self.identity.refuse_unknown()
        self.options.check_named(self.identity.keys)
        resumed, self._resumed = self._resumed, False
        if self.opened is None:
            self._check_figures(resumed=resumed)
            self.resumed_at = self.ledger.next_epoch if resumed else self.resumed_at
            self.meter.overhead.clear()
        with self.meter.overhead:
            self.flush()
            if self.opened is not None and (self.opened.restored is not None or self.group.processes > 1):
                self.opened.rejoin(self.group)
            with self.uninterrupted:
                if self.opened is None:
                    self.opened = self._next()
                else:
                    self.opened.go_on()
                    # An epoch that was observed whole can only lack its figure, which may still come.
                    self._resumed = resumed and not self.opened.epoch.remaining.any()
                self.buffer.clear()
            epoch = self.opened.epoch
            self.group.begin_epoch(epoch)
            for adapter in self.adapters:
                adapter.begin_epoch(epoch)
        self.meter.start()
        return epoch

    def _next(self) -> OpenEpoch:
        """Return the next epoch, with nothing observed."""
        epochs = self.pruning.schedule.epochs
        if self.ledger.next_epoch >= epochs:
            raise NotInEpoch(
                f"Expected one of {epochs} epochs to begin. Got none: all are done. To continue, pass more epochs; in "
                "a search for settings make a Pruner within each trial."
            )
        epoch = self.pruning.next_epoch(self.ledger)
        opened = OpenEpoch(epoch, self.options.chosen, self.ledger.arrays, self.meter, looks=self.pruning.looks)
        self.meter.begin()
        return opened

    def end(self, *, commit: bool = True) -> None:
        """Close the open epoch and commit it; :class:`SkippedSamples` leaves it open."""
        opened, epoch, ledger = self.now, self.now.epoch, self.ledger
        with self.meter.overhead:
            # All processes meet even after a failure here: otherwise the others would wait for ever.
            failure = self._flush_failure()
            if opened.restored is not None:  # with nothing left to observe
                opened.rejoin(self.group)
            local = self._local_delivery()
            sums = replace(
                self.meter.sums,
                skipped=opened.skipped,
                unseen=opened.unseen(local) if self.group.processes > 1 else 0,
                delivered=local.delivered or 0,
                guessed=not opened.arrays.keys().isdisjoint({GUESS, LABEL}),
            )
            totals = EpochSums(*self.group.meet(astuple(sums), failure, *opened.to_meet))
            if failure is not None:
                raise failure
            if totals.agreed and self.group.processes > 1:
                self.group.agree("validation figures of the epoch", sums.figures, sums.figure_sum)
            # What all of them have observed.
            tally, arrays = opened.merged(self.group, guessed=totals.guessed > 0)
            delivery = opened.delivery_of_all(local, tally, totals, self.group)
            # Was the epoch observed whole?
            for adapter in self.adapters:
                adapter.end_epoch(epoch, tally)
            tally.check()
            try:
                opened.check_complete(tally, delivery, int(totals.skipped))
            except SkippedSamples:
                for adapter in self.adapters:  # so that a second loop gets the missing samples
                    for report in adapter.deliveries:
                        report.ended = None
                raise
            # It ends.
            tally = opened.of_counted(tally)
            validation = totals.validation
            with self.uninterrupted:
                record = self._new_record(epoch, tally, delivery, totals.mean_loss) | validation
                if self.pruning.looks and epoch.number:
                    record |= totals.within
                earlier = self.pruning.saved_of(ledger)
                ledger.end_epoch(tally, arrays, record, reset=self.pruning.schedule.resets(epoch.number))
                self._close()
                if tally.observed != epoch.trained_on or delivery.left_out or totals.skipped:
                    self.identity.miss(epoch.trained, tally.visits)
                self._look(earlier)
            if commit:
                self.commit()
        record["overhead"] = self.meter.overhead.seconds
        for adapter in self.adapters:
            adapter.epoch_ended(record)

    def _look(self, earlier: Arrays | None = None) -> None:
        """Check whether the last figure shows the memorization onset; with ``auto``, follow advice.

        ``earlier`` are the arrays before the epoch, when it ends; None when its figure comes later.
        """
        ledger, pruning = self.ledger, self.pruning
        self.figures.take(ledger.history[-1])
        ledger.arrays.adds_excess = self.figures.onset is None
        before = pruning.advice
        # A run that prunes already is advised once more by the figure, as it shows that there are wrong labels.
        if self.options.auto and (before is None or (self.figures.onset is not None and before.onset is None)):
            if earlier is not None:
                ledger.history[-1] |= pruning.seen(ledger, earlier)
            advice = pruning.advise(ledger)
            if advice.schedule is not None:
                pruning.schedule, pruning.advice = advice.schedule, advice

    @property
    def is_validated(self) -> bool:
        """Whether the epoch that is open, or else the one that has just ended, has its figure."""
        if self.opened is not None:
            return self.meter.is_validated
        return bool(self.ledger.history) and "validation" in self.ledger.history[-1]

    @property
    def awaits_figure(self) -> bool:
        """Whether an epoch that was observed whole, open or the last that ended, lacks an expected figure.

        Figures are expected as often as they came before; and in the first two epochs of a run with ``auto``.
        """
        number = self.ledger.next_epoch - (self.opened is None)
        if self.options.holdout is not None or self.is_validated or number < 0:
            return False
        given = [record["number"] for record in self.ledger.history if "validation" in record]
        if given:
            expected = number - given[-1] >= min(later - before for before, later in pairwise([-1, *given]))
        else:
            expected = self.options.auto and number < 2
        return bool(expected and (self.opened is None or self.is_complete()))

    def awaits_figure_somewhere(self) -> bool:
        """Whether no process has the expected figure of the open epoch. Called in all of them."""
        given, awaiting = self.group.add_up(np.array([self.is_validated, self.awaits_figure], float))
        return bool(awaiting and not given)

    def _check_figures(self, *, resumed: bool) -> None:
        """Compare the figures of all processes before an epoch begins; warn if a resumed run lacks one."""
        if self.group.processes > 1 and self.options.holdout is None:
            self.group.agree("validation figures", self.figures.number, self.figures.newest)
        if resumed and self.figures.number and self.awaits_figure:
            warn(
                f"Expected the validation figure of epoch {self.ledger.next_epoch - 1}, whose checkpoint was saved "
                "before validated() was called. Got the next epoch without it, so the run may decide otherwise than "
                "one that never stopped: after resuming, if pruner.awaits_figure is true, call pruner.validated() "
                "first.",
                NeverPrunesWarning,
            )

    def validated(self, figure: object, *, lower_is_better: bool | None, agreed: bool) -> None:
        """Record the validation figure of the open epoch, or of the one that has just ended."""
        self._refuse_failed()
        history, sums = self.ledger.history, self.meter.sums
        if self.is_validated:
            raise PrunedataError(
                f"Expected one validation figure for epoch {self.ledger.next_epoch - (self.opened is None)}. Got a "
                "second one: call validated() once an epoch."
            )
        if self.options.holdout is not None:
            raise PrunedataError(
                "Expected no validation figure in a run that holds samples out. Got one: build the Pruner without "
                "holdout, or don't call validated()."
            )
        value = check_figure(figure, lower_is_better, history)
        if self.opened is not None:
            sums.figure_sum, sums.figures, sums.agreed = value, 1, agreed
            sums.lower_is_better, sums.higher_is_better = int(lower_is_better is True), int(lower_is_better is False)
            return
        if not history:
            raise NotInEpoch("Expected the validation figure of an epoch. Got one before the first began.")
        if self.group.processes > 1 and not agreed:
            raise NotInEpoch(
                "Expected each rank to give its validation figure before the epoch ends, as the ranks meet there. Got "
                f"one after epoch {history[-1]['number']} had ended: call validated() before end_epoch(), or within "
                "the loop over epochs(); or, with the same figure on all ranks, pass agreed=True."
            )
        with self.uninterrupted:
            told = {} if lower_is_better is None else {"lower_is_better": lower_is_better}
            history[-1] |= {"validation": value} | told
            self._look()
        self.commit()

    def _flush_failure(self) -> PrunedataError | None:
        try:
            self.flush()
            self.now.refuse_repeats()
        except PrunedataError as error:
            return error
        return None

    def join(self, group: Group) -> None:
        """Train with other processes from now on."""
        self.group, self.meter.processes = group, group.processes
        if self.opened is not None and self.is_recording:
            self.flush()
            self.opened.leave_to_first(group)
            group.begin_epoch(self.opened.epoch)

    def _new_record(self, epoch: Epoch, tally: Tally, delivery: Delivery, mean_loss: float | None) -> dict[str, Any]:
        self.meter.stop(delivery.ended)
        record = {
            "number": epoch.number,
            "pruned": epoch.pruned,
            "kept": epoch.kept,
            "observed": tally.observed,
            "seconds": self.meter.seconds(),
            "mean_loss": mean_loss,
            "overhead": self.meter.overhead.elapsed,
        }
        pruning, trained = self.pruning, epoch.trained_on
        if self.options.leave_out == "nothing":
            record["would_prune"] = pruning.num_pruned if pruning.would_prune(epoch.number) else 0
        if trained < pruning.trainable:
            before, self.ledger.sketch = self.ledger.sketch, sketch(epoch.trained | (pruning.roles != Role.TRAINED))
            share = None if before is None else agreement(before, self.ledger.sketch)
            record |= {} if share is None else {"agreement": share}
        parts = {
            "by_weight": epoch.kept - trained - pruning.num_held_out,
            "held_out": pruning.num_held_out,
            "without": pruning.num_without,
        }
        return record | {name: number for name, number in parts.items() if number > 0}

    def _close(self) -> None:
        self.opened = None
        self.buffer.clear()

    def end_if_complete(self, epoch: Epoch) -> None:
        """End an epoch whose loop was left, in memory, if it was observed whole and this process trains alone."""
        if sys.is_finalizing():  # numpy is half gone
            return
        alone = self.group.processes == 1 and self.in_thread()
        with suppress(PrunedataError):  # the epoch then stays open, and raises when it continues
            if alone and self.is_recording and self.is_open(epoch) and self.is_complete() and not self.awaits_figure:
                self.end(commit=False)

    def is_open(self, epoch: Epoch) -> bool:
        """Whether this epoch is the open one."""
        return self.opened is not None and self.opened.epoch.number == epoch.number

    def is_complete_everywhere(self) -> bool:
        """Whether all processes have observed the open epoch whole. Called in all of them."""
        complete = self.is_complete()
        if self.group.processes == 1:
            return complete
        # All decide by the same sums: a process that ends the epoch and one that continues would wait for each other.
        opened, local = self.now, self._local_delivery()
        counts = self.options.chosen.needs_losses and opened.restored is None and local.given is None
        done = opened.tally.observed + opened.skipped
        ended, counting, done, left_out = self.group.add_up(np.array([complete, counts, done, local.left_out], float))
        processes = self.group.processes
        if ended < processes or counting < processes:
            return bool(ended == processes)
        return bool(done + left_out / processes >= opened.epoch.kept)  # all may have been fetched, and not observed

    def is_complete(self) -> bool:
        """Whether the open epoch was observed whole, as far as this process can tell."""
        self.flush()
        delivery = self.delivery()
        if self.group.processes > 1 and delivery.ended is not None:
            return True  # the observations of other processes are unknown here
        return self.now.is_complete(delivery)

    def _local_delivery(self) -> Delivery:
        """Return what the loaders of this process have delivered."""
        opened = self.opened
        if opened is None or opened.restored is None:
            reports = (report for adapter in self.adapters for report in adapter.deliveries)
            return together(self.ledger.next_epoch, reports)
        return opened.delivery_before(opened.restored)

    def delivery(self) -> Delivery:
        """Return what the loaders have delivered; alone also with what their sources did not give."""
        local, opened = self._local_delivery(), self.opened
        return local if opened is None or self.group.processes > 1 else opened.with_left_out(local)

    # -- losses

    def add(self, ids: Any, losses: Any, sizes: Any = None, guesses: Any = None) -> None:
        """Record a batch that does not fit the buffer's fast path, or several batches of the given sizes."""
        if not self.is_recording:
            self._refuse()
        with self.uninterrupted:
            self._record_all(self.buffer.put(ids, losses, sizes, guesses))
            self._thread = threading.get_ident()

    def see_labels(self, ids: Any, labels: Any, losses: Any, logits: Any, *, sure: bool) -> None:
        """Keep the labels of a batch; if the run knows those of all samples, compare them in an epoch's first batch."""
        if not self.is_recording:
            self._refuse()
        if not self.now.wants_labels:
            return
        known = plain_ids(ids)
        if known.size and not 0 <= known.min() <= known.max() < self.options.samples:
            return  # observing their losses is an error, which says more
        try:
            numbers = plain_labels(labels, known.size)
        except LossError:
            if sure:
                raise
            return
        if logits is not None and self._tries and not self.ledger.next_epoch:
            multiples = are_multiples(losses, logits, numbers)
            self._tries = self._tries - 1 if multiples is None else 0
            if multiples:
                warn(MULTIPLES, UnweighedWarning)
        self.now.see_labels(known, numbers, sure=sure)

    def _record_all(self, parts: Iterator[Taken]) -> None:
        for taken in parts:
            try:
                self._record(taken)
            finally:  # a bad batch must not lose the parts after it
                self._record_all(parts)

    def _record(self, taken: Taken) -> None:
        if taken.good is not None:
            with self.meter.overhead:
                try:
                    self.now.add(taken.good)
                except BaseException:  # a policy's update may have stopped halfway
                    self._failed = True
                    raise
        if taken.complaint:
            raise LossError(taken.complaint)

    def flush(self) -> None:
        """Record all losses that adapters and the buffer hold back.

        Raises :class:`LossError` if batches have ids out of range or losses that are not finite. It names these batches
        and samples; they are left out and all others are recorded.
        """
        self._refuse_failed()
        if not self.in_thread():
            raise NotInEpoch(
                "Expected to be called in the thread that trains, as losses wait there to be recorded. Got another "
                "thread: call it between epochs, or read counts, hits and visits. If the training has moved to this "
                "thread, as where each step runs in a thread of its own, call pruner.take_over() here."
            )
        if self.is_recording:
            for adapter in self.adapters:
                for block in adapter.held_back():
                    self.add(*block)
        with self.uninterrupted:
            taken = self.buffer.take()
            if taken is not None:
                self._record(taken)

    def _refuse(self) -> None:
        """Raise the reason why nothing can be observed."""
        self._refuse_failed()
        _ = self.now
        raise NotInEpoch("Expected begin_epoch() before observe() in a run that was just restored.")

    def _refuse_failed(self) -> None:
        if self._failed:
            raise NotInEpoch(
                "Expected a run whose last step succeeded. Got one whose policy raised an error while it recorded "
                "losses: correct the policy, and go on from the last commit or checkpoint."
            )

    def take_over(self) -> None:
        """Make the calling thread the one that trains."""
        self._thread = threading.get_ident()

    def in_thread(self) -> bool:
        """Whether the calling thread is the one that trains, or none is."""
        return not self.is_recording or self._thread in (None, threading.get_ident())

    def observed(self) -> tuple[SampleCounts, Arrays]:
        """Return counts and arrays as if the open epoch ended now; from another thread, without losses in the buffer.

        Do not change them. The arrays are copies if an epoch is open.
        """
        if self.opened is not None and self._thread in (None, threading.get_ident()):
            self.flush()
        with self.uninterrupted:  # within it, no other thread begins or ends an epoch
            counts, arrays, opened = self.ledger.counts, self.ledger.arrays, self.opened
            if opened is None:
                return counts, arrays.finished
            tally = opened.of_counted(opened.tally)
            counts = counts.after(tally, reset=self.pruning.schedule.resets(self.ledger.next_epoch))
            changed = {name: array.copy() for name, array in opened.arrays.items()}
            return counts, arrays.after(changed, counts.visits, tally.visits)

    # -- its state

    def commit(self) -> None:
        """Write where the run stands to its store, if it has one."""
        if self.store is not None:
            self.flush()
            self.identity.saved()
            with self.uninterrupted:
                state = self.state()
                self.store.write(state.to_json(), state.arrays)

    def checkpoint(self) -> dict[str, Any]:
        """Return where the run stands as a dict of plain values."""
        self.flush()
        self.identity.saved()
        with self.uninterrupted:
            return self.state().to_checkpoint()

    def state(self) -> RunState:
        """Return where the run stands. Call :meth:`flush` first, within ``uninterrupted``."""
        opened, advice, delivery = self.opened, self.pruning.advice, self.delivery()
        rank, processes, left_out = 0, 1, 0
        arrays = self.ledger.saved | self.pruning.saved | self.options.saved | self.identity.arrays
        waiting, unseen = None, None
        if opened is not None:
            part = self.group if opened.restored is None else opened.restored  # an epoch that has not continued
            rank, processes, left_out = part.rank, part.processes, delivery.left_out
            arrays, waiting = arrays | opened.saved, opened.waiting
            if processes > 1 and delivery.given is not None:
                unseen = opened.unseen(delivery)
        return RunState(
            run=self.options.description,
            schedule=self.pruning.schedule.to_dict(),
            epoch=self.ledger.next_epoch,
            open=opened is not None,
            complete=opened is not None and self.is_complete(),
            skipped=0 if opened is None else left_out + opened.skipped,
            observed=0 if opened is None else opened.tally.observed,
            meter=self.meter.to_dict(delivery.ended),
            history=self.ledger.history,
            sketch=self.ledger.sketch,
            advice=None if advice is None else advice.to_dict(),
            rank=rank,
            processes=processes,
            left_out=left_out,
            unseen=unseen,
            shared=None if waiting is None else waiting.shared.to_dict(),
            data=self.identity.stored,
            arrays=arrays,
        )

    def restore(self, state: RunState, schedule: Schedule, advice: Advice | None) -> None:
        """Continue from a checked state, by a schedule and advice."""
        with self.uninterrupted:
            self.group.forget()
            for adapter in self.adapters:
                adapter.forget()
            self._close()
            self._failed, self._resumed = False, True
            self.pruning.schedule, self.pruning.advice = schedule, advice
            self.pruning.restore(state.without, state.held_out)
            self.identity.restore(state)
            self.figures = find_onset(state.history)
            self.ledger = Ledger(self.options)
            self.ledger.restore(state)
            self.ledger.arrays.adds_excess = self.figures.onset is None
            opened = self._next() if state.open else None
            self.meter.restore(state.meter)
            if opened is not None:
                opened.restore(state)
            self.opened = opened
