"""The machine of a run: it opens an epoch, records its losses and closes it, each step whole or not at all."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from prunedata.errors import LossError, NotInEpoch, PrunedataError, SkippedSamples
from prunedata.plan.schedule import Schedule
from prunedata.policies.agreement import note_left_out
from prunedata.policies.protocol import Policy
from prunedata.run.adapter import Adapters, Delivery
from prunedata.run.block import Block
from prunedata.run.completeness import check_complete, is_complete, missing, with_left_out
from prunedata.run.counts import Tally
from prunedata.run.epoch import Epoch, read_only, select
from prunedata.run.ledger import Ledger
from prunedata.run.plan import RunPlan
from prunedata.run.ranks.meeting import Met, said_by_all, unseen
from prunedata.run.ranks.waiting import Shared, in_words
from prunedata.run.whole import Whole
from prunedata.store.state import RunState
from prunedata.types import Arrays, Counts, Ids, Means, Recorded, Sizes

if TYPE_CHECKING:
    from prunedata.findings.advice import Advice

__all__ = ["Engine", "Phase"]


class Phase(Enum):
    """What a run can be asked to do next."""

    BETWEEN = "between two epochs, before the first or after the last"
    OPEN = "within an epoch"
    RESTORED = "within an epoch, restored from a state and not yet gone on with"
    FAILED = "no further: a step failed in its middle"


class Engine:
    """Runs the epochs of a plan, and writes what comes of them into a ledger.

    Parameters
    ----------
    samples : int
    policy : Policy
    seed : int
    plan : RunPlan
        When and how much to prune.
    ledger : Ledger
        What is known and was done.
    """

    def __init__(self, samples: int, policy: Policy, seed: int, plan: RunPlan, ledger: Ledger) -> None:
        self.policy, self.seed, self.plan, self.ledger = policy, seed, plan, ledger
        self.adapters = Adapters()
        self.phase = Phase.BETWEEN
        self.epoch: Epoch | None = None
        """The open epoch."""
        self.whole = Whole()
        self.block = Block(samples, self._record, self._refuse, self.whole)
        self._samples = samples
        self._excused = 0
        self._restored: Delivery | None = None
        self._unseen = 0
        """Samples that were given and not observed, as a process had saved it that went on from its own state."""
        self._part: tuple[int, int] | None = None
        """Which of how many processes the state is of that was restored; None once it was gone on with."""
        self._is_of_all = False
        self._known_to_all: Tally | None = None
        """What all processes had observed together when they went on with the epoch."""
        """Whether the open epoch goes on from a state of all processes, whose losses are this one's as well."""
        self._sharing_known = False
        """Whether the open epoch's first loader has begun, so that others must share batches as it does."""

    @property
    def current(self) -> Epoch:
        """The open epoch. Raises :class:`NotInEpoch` if none is."""
        if self.epoch is None:
            raise NotInEpoch(
                "Expected an open epoch. Got none: loop over `for epoch in pruner.epochs():`, "
                "or call begin_epoch() and end_epoch()."
            )
        return self.epoch

    @property
    def is_restored(self) -> bool:
        """Whether it stands within an epoch, restored from a state and not yet gone on with."""
        return self._part is not None

    @property
    def is_finished(self) -> bool:
        """Whether no epoch is left."""
        return self.phase is Phase.BETWEEN and self.ledger.next_epoch >= self.plan.schedule.epochs

    # -- the epochs

    def begin(self) -> Epoch:
        """Open the next epoch, or go on with the one that is open."""
        self._refuse_failed()
        meter = self.ledger.meter
        if self.epoch is None:
            meter.overhead.clear()
        with meter.overhead:
            self.flush()
            self._is_of_all = self._sharing_known = False
            self._rejoin()
            self._known_to_all = None
            with self.whole:
                rejoined = self._part is not None and self.adapters.merge
                self._restored, self._part, self._excused, self._unseen = None, None, 0, 0
                self.epoch = self._next() if self.epoch is None else self._rest(self.epoch)
                if rejoined:
                    self._known_to_all = self.ledger.tally.copy()
                self.block.open()
                self.phase = Phase.OPEN
            for adapter in self.adapters:
                adapter.begin_epoch(self.epoch)
        meter.start()
        return self.epoch

    def _rejoin(self) -> None:
        """Learn what all processes had observed of an epoch that was restored, or left and is gone on with."""
        if self.phase is Phase.OPEN and self.adapters.merge:
            self._part = self.adapters.rank, self.adapters.processes
        if self._part is None:
            return
        self._check_part()
        ledger = self.ledger
        if self._is_counted_elsewhere:
            ledger.meter.loss_sum, ledger.meter.visits = 0.0, 0
            if self.adapters.merge:  # else it would count on each
                ledger.tally.clear()
        waiting: Arrays = {} if ledger.waiting is None else ledger.waiting.arrays
        self._leave_out_known(ledger.tally)
        for adapter in self.adapters:
            adapter.rejoin(self._part, ledger.tally, ledger.arrays.open | waiting)
        ledger.settle(self.current, self.policy.tolerance)
        self._is_of_all = self._part == (0, 1)
        self.count_once()

    def count_once(self) -> None:
        """Let the losses of a state that all processes go on from count on one of them, once these are known."""
        if self._is_of_all and self.adapters.rank:
            self.ledger.meter.loss_sum, self.ledger.meter.visits = 0.0, 0
            if self.phase is Phase.OPEN:
                self._known_to_all = self.ledger.tally.copy()
            self._is_of_all = False

    @property
    def _is_counted_elsewhere(self) -> bool:
        """Whether the state that was restored is of all processes, so that it counts on another one."""
        return self._part == (0, 1) and self.adapters.rank > 0

    def _check_part(self) -> None:
        """Raise if the state that was restored is of other processes than train now."""
        if self._part is not None and self._part[1] not in (1, self.adapters.processes):
            rank, parts = self._part
            raise PrunedataError(
                f"Expected epoch {self.ledger.next_epoch} to go on with {parts} processes, as it was left: each has "
                f"saved what it observed. Got {self.adapters.processes} and the state of rank {rank} alone: give "
                f"load_state_dict() the list of all {parts} states, and go on with any number."
            )

    def _next(self) -> Epoch:
        epochs = self.plan.schedule.epochs
        if self.ledger.next_epoch >= epochs:
            raise NotInEpoch(
                f"Expected one of {epochs} epochs to begin. Got none: all are done. To go on, give the schedule more."
            )
        epoch = self._select()
        self.ledger.begin_epoch()
        return epoch

    def _rest(self, epoch: Epoch) -> Epoch:
        return replace(epoch, remaining=read_only(epoch.remaining & (self.ledger.tally.visits == 0)))

    def _select(self) -> Epoch:
        plan, number, weights = self.plan, self.ledger.next_epoch, None
        pruned, num_pruned = plan.prunes(number), plan.num_pruned
        if pruned and num_pruned:
            known = self.ledger.knowledge(num_pruned)
            keep, weights = select(self.policy, known, seed=self.seed, epoch=number, among=plan.included)
        else:
            keep = read_only(np.ones(self._samples, dtype=np.bool_)) if plan.included is None else plan.included
        return Epoch(number, pruned, keep, plan.kept_in(number), keep, self.seed, weights)

    def share(self, shared: Shared | None) -> None:
        """Let losses of the open epoch wait for the means of batches that processes share, or none wait."""
        epoch, waiting = self.current, self.ledger.waiting
        before = None if waiting is None else waiting.shared
        if self._sharing_known and shared != before:
            raise PrunedataError(
                f"Expected loaders that share the batches of epoch {epoch.number} among processes in one way. Got one "
                f"with {in_words(shared)} after one with {in_words(before)}: iterate each in epochs of its own, or "
                "call begin_epoch() on all processes between them, and the second delivers what remains."
            )
        self.flush()
        if shared is not None and before is None and self.block.batches:
            raise PrunedataError(
                f"Expected the loader to be iterated before losses of epoch {epoch.number} are observed, as it shares "
                "batches among processes. Got losses that were observed before: call observe() for what the loader "
                "delivers, and for nothing else."
            )
        self._sharing_known = True
        self.ledger.wait(shared)

    def end(self, commit: Callable[[], None]) -> bool:
        """Close the open epoch and commit it; return whether advice has come with it.

        Raises
        ------
        SkippedSamples
            If kept samples were not observed. The epoch stays open.
        """
        epoch, ledger = self.current, self.ledger
        self._check_part()
        with ledger.meter.overhead:
            met = self._meet()
            tally, arrays = self._merged()
            delivery = self._delivery_of_all(tally, met)
            for adapter in self.adapters:
                adapter.end_epoch(epoch, tally)
            tally.check()
            needs_losses = self.policy.needs_losses
            try:
                check_complete(epoch, tally, delivery, int(met.excused), needs_losses=needs_losses)
            except SkippedSamples:
                self.adapters.reopen()  # the loop that is run again gets what is missing
                raise
            with self.whole:
                record = self._new_record(epoch, tally, delivery, met.mean_loss)
                ledger.end_epoch(tally, arrays, record, reset=self.plan.schedule.resets(epoch.number))
                self._close()
                advised = self.plan.ask(ledger.known, ledger.arrays.finished.get("high"), ledger.history)
                ledger.known = ledger.known.widened(self.plan.longest_window)
            commit()
        record["overhead"] = ledger.meter.overhead.seconds
        for adapter in self.adapters:
            adapter.epoch_ended(record)
        return advised

    def end_if_complete(self, epoch: Epoch) -> None:
        """End an epoch whose loop was left, if it was seen whole, in memory. Ranks decide nothing alone."""
        if sys.is_finalizing():  # numpy is half gone, and so is who would read it
            return
        alone = not self.adapters.merge and self.in_thread()
        with suppress(PrunedataError):  # nobody would see it here: the epoch stays open, and says it when gone on with
            if alone and self.phase is Phase.OPEN and self.is_open(epoch) and self.is_complete():
                self.end(commit=lambda: None)

    def _meet(self) -> Met:
        """Record what waits; return what all processes have to say.

        An error here must not leave the others waiting, so that they are told of it first.
        """
        failure: Exception | None = None
        try:
            self.flush()
            self._refuse_repeats()
        except PrunedataError as error:
            failure = error
        meter = self.ledger.meter
        said = self._said()
        losses = (0.0, 0) if self._is_counted_elsewhere else (meter.loss_sum, meter.visits)
        own = Met(self._excused, self._unseen_here(said), said.delivered or 0, *losses)
        sums: list[float] = [float(number) for number in own]
        waiting = self.ledger.waiting
        tally, shared = (self.ledger.tally, None) if waiting is None else (None, waiting.shared)
        for adapter in self.adapters:
            sums = adapter.meet(sums, failure, tally, shared)
        if failure is not None:
            raise failure
        return Met(*sums)

    def _refuse_repeats(self) -> None:
        """Raise if samples were observed again that wait for the means of their global batches: one loss waits."""
        if self.ledger.waiting is not None and self.ledger.tally.repeats:
            again = int(np.count_nonzero(self.ledger.tally.visits > 1))
            raise LossError(
                f"Expected each sample of epoch {self.current.number} to be observed once, as the ranks share its "
                f"batches. Got {again} that were observed more often: of several evaluations of a batch, as LBFGS "
                "makes them, observe one; or give each rank a sampler of its own, with which every visit counts."
            )

    def _unseen_here(self, said: Delivery) -> int:
        """How many samples this process was given and has not observed, if there are others."""
        if self._restored is not None or not self.adapters.merge:
            return self._unseen
        return unseen(self.current, self.ledger.tally, said, needs_losses=self.policy.needs_losses)

    def _delivery_of_all(self, tally: Tally, met: Met) -> Delivery:
        """What the loaders of all processes say, which have observed ``tally`` together."""
        said = self._said()
        if not self.adapters.merge:
            return with_left_out(self.current, tally, said)
        return said_by_all(self.current, tally, said, met, lambda one: self._merge(one, {}))

    def _merged(self) -> tuple[Tally, Arrays]:
        """The epoch's tally and the policy's arrays, over all processes."""
        tally, arrays = self.ledger.tally, self.ledger.arrays.open
        if self.adapters.merge:
            # On copies: should the epoch not end, as samples were skipped, nothing may be merged twice.
            if self.ledger.waiting is None:
                tally, arrays = tally.copy(), {name: array.copy() for name, array in arrays.items()}
                if self._is_counted_elsewhere:
                    tally.clear()
                self._leave_out_known(tally)
            else:
                seen = self.ledger.tally.packed != 0
                settled = self.ledger.waiting.settle(self.current, seen, self.adapters.add_up)
                tally, arrays = self.ledger.settled(settled, self.policy.tolerance)
            self._merge(tally, arrays)
        return tally, arrays

    def _leave_out_known(self, tally: Tally) -> None:
        """Take out, in place, what all processes know already, and what counts on the first of them."""
        if self._known_to_all is not None and self.adapters.rank:
            tally.packed -= self._known_to_all.packed
            tally.observed -= self._known_to_all.observed

    def _merge(self, tally: Tally, arrays: Arrays) -> None:
        for adapter in self.adapters:
            adapter.merge(tally, arrays)

    def _new_record(self, epoch: Epoch, tally: Tally, delivery: Delivery, mean_loss: float | None) -> dict[str, Any]:
        meter = self.ledger.meter
        meter.stop(delivery.ended)
        record = {
            "number": epoch.number,
            "pruned": epoch.pruned,
            "kept": epoch.kept,
            "observed": tally.observed,
            "seconds": meter.seconds(),
            "mean_loss": mean_loss,
            "overhead": meter.overhead.elapsed,
        }
        if self.plan.observe_only:
            record["would_prune"] = self.plan.num_pruned if self.plan.would_prune(epoch.number) else 0
        if epoch.kept < self.plan.trainable:
            chosen = epoch.keep if self.plan.included is None else epoch.keep | ~self.plan.included
            record |= note_left_out(chosen, self.ledger.history)
        if self.plan.num_without:
            record["without"] = self.plan.num_without
        return record

    def _close(self) -> None:
        self.epoch, self._restored, self._part, self._excused, self._unseen = None, None, None, 0, 0
        self._is_of_all = self._sharing_known = False
        self._known_to_all = None
        self.block.close()
        self.phase = Phase.BETWEEN

    # -- losses

    def _record(self, ids: Ids, losses: Recorded, sizes: Sizes, means: Means) -> None:
        with self.ledger.meter.overhead:
            try:
                self.ledger.add(ids, losses, sizes, means, self.policy.tolerance)
            except BaseException:  # of a policy's update, perhaps in its middle
                self.phase = Phase.FAILED
                raise

    def _refuse(self) -> None:
        """Say why nothing can be observed."""
        self._refuse_failed()
        _ = self.current
        raise NotInEpoch("Expected begin_epoch() before observe() in a run that was just restored.")

    def _refuse_failed(self) -> None:
        if self.phase is Phase.FAILED:
            raise NotInEpoch(
                "Expected a run whose last step succeeded. Got one whose policy raised an error while it recorded "
                "losses: correct the policy, and go on from the last commit or checkpoint."
            )

    def flush(self) -> None:
        """Record everything that waits, in adapters and in the block."""
        self._refuse_failed()
        if not self.in_thread():
            raise NotInEpoch(
                "Expected to be asked in the thread that trains, as losses wait there to be recorded. Got another "
                "thread: ask between epochs, or look at counts, hits and visits. If the training has moved to this "
                "thread, as where each step runs in a thread of its own, call pruner.take_over() here."
            )
        if self.phase is Phase.OPEN:
            for adapter in self.adapters:
                adapter.hand_over()
        self.block.flush()

    def take_over(self) -> None:
        """Let the calling thread be the one that trains."""
        self.block.thread = threading.get_ident()

    def in_thread(self) -> bool:
        """Whether this is the thread that trains, or none does."""
        return self.phase is not Phase.OPEN or self.block.thread in (None, threading.get_ident())

    def excuse(self, samples: int) -> None:
        """Let more kept samples of the open epoch go unobserved."""
        _ = self.current
        self._excused += samples

    def is_open(self, epoch: Epoch) -> bool:
        """Whether this epoch is the open one."""
        return self.epoch is not None and self.epoch.number == epoch.number

    def is_complete(self) -> bool:
        """Whether nothing of the open epoch is left to train on."""
        self.flush()
        delivery = self._delivery()
        if self.adapters.merge and delivery.ended is not None:
            return True  # what other processes have observed is not known here
        return is_complete(self.current, self.ledger.tally, delivery, self._excused)

    def _said(self) -> Delivery:
        """What the loaders of this process say."""
        return self.adapters.delivery(self.ledger.next_epoch) if self._restored is None else self._restored

    def _delivery(self) -> Delivery:
        """What the loaders say, as far as this process knows what was observed."""
        said = self._said()
        return said if self.epoch is None or self.adapters.merge else with_left_out(self.epoch, self.ledger.tally, said)

    def counts(self) -> Counts:
        """DroppingCount with the open epoch: from another thread, without what still waits."""
        if self.epoch is not None and self.block.thread in (None, threading.get_ident()):
            self.flush()
        with self.whole:  # within it, no other thread begins or ends an epoch
            known = self.ledger.known
            if self.epoch is None:
                return known.counts.copy()
            return known.counts_with(self.ledger.tally, reset=self.plan.schedule.resets(self.ledger.next_epoch))

    # -- its state

    def state(self, run: dict[str, Any]) -> RunState:
        """Where the run stands that ``run`` describes. Call :meth:`flush` first."""
        within = self.epoch is not None
        delivery, advice, meter = self._delivery(), self.plan.advice, self.ledger.meter
        rank, processes = (self.adapters.rank, self.adapters.processes) if within else (0, 1)
        if self._part is not None:  # restored and not gone on with: it is still what it was
            rank, processes = self._part
        left_out = delivery.left_out if within else 0
        costs = meter.to_dict(delivery.ended)
        tally, arrays = self.ledger.tally, self.ledger.state(within=within) | self._left_out()
        if within and self._known_to_all is not None:
            tally = tally.copy()
            self._leave_out_known(tally)
            arrays["tally"] = tally.packed
        return RunState(
            run=run,
            schedule=self.plan.schedule.to_dict(),
            epoch=self.ledger.next_epoch,
            open=within,
            complete=within and self.is_complete(),
            excused=left_out + self._excused if within else 0,
            observed=tally.observed,
            meter=costs if processes == 1 else costs | {"visits": meter.visits},
            history=self.ledger.history,
            advice=None if advice is None else advice.to_dict(),
            rank=rank,
            processes=processes,
            left_out=left_out,
            unseen=self._unseen_here(delivery) if within and processes > 1 and delivery.given is not None else None,
            shared=self.ledger.waiting.shared.to_dict() if within and self.ledger.waiting is not None else None,
            arrays=arrays,
        )

    def _left_out(self) -> Arrays:
        included = self.plan.included
        return {} if included is None else {"without": (~included).astype(np.uint8)}

    def restore(self, state: RunState, schedule: Schedule, advice: Advice | None) -> None:
        """Go on from a checked state, by a schedule and an advice."""
        with self.whole:
            for adapter in self.adapters:
                adapter.forget()
            self._close()
            self.plan.go_on(schedule, advice)
            self.plan.leave_out(state.without)
            self.ledger.restore(state)
            self.ledger.known = self.ledger.known.widened(self.plan.longest_window)
            if state.open:
                self.epoch, self.phase = self._select(), Phase.RESTORED
                self._part, self._restored = (state.rank, state.processes), self._delivery_in(state, self.epoch)
                if state.processes == 1:
                    self.ledger.settle(self.epoch, self.policy.tolerance)

    def _delivery_in(self, state: RunState, epoch: Epoch) -> Delivery:
        """What the loaders had said when a state was saved."""
        said = Delivery(state.epoch, left_out=state.excused, ended=0.0 if state.complete else None)
        if state.unseen is None:
            return said
        if state.processes == 1:  # of all: what else is missing nobody was given
            absent = int(np.count_nonzero(missing(epoch, self.ledger.tally)))
            return replace(said, left_out=state.excused + max(0, absent - state.unseen))
        self._unseen = max(0, state.unseen - state.excused)
        return replace(said, given=epoch.keep)
