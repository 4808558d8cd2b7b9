"""The open epoch: what this process has observed of it, and what is still missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from prunedata.counting.batches import Batches
from prunedata.counting.counts import Tally, find_hits
from prunedata.counting.sample_arrays import SampleArrays
from prunedata.errors import LossError, PrunedataError, SkippedSamples
from prunedata.plan.onset import trust_in
from prunedata.policies.protocol import Policy
from prunedata.policies.rules import RecentLoss
from prunedata.run.adapter import Delivery
from prunedata.run.epoch import Epoch, Role, read_only
from prunedata.run.group import Group
from prunedata.run.meter import EpochSums, Meter
from prunedata.run.waiting import Shared, WaitingLosses, in_words
from prunedata.store.state import OPEN, RunState
from prunedata.types import Array, Arrays, Floats, Ids, Mask


class OpenEpoch:
    """The observations of this process in an open epoch.

    Each observation is in one process: the one that made it, or the first of the group if the epoch was restored from
    the states of all. The others have only a mask of it, so that sums over all processes are those of the epoch.

    ``watched`` are the arrays after the finished epochs, which stay as they are. ``looks``: whether the run still looks
    for labels to doubt, by how its losses fall within epochs.
    """

    def __init__(
        self, epoch: Epoch, policy: Policy, watched: SampleArrays, meter: Meter, *, looks: bool = False
    ) -> None:
        self.epoch = epoch
        self.tally = Tally(epoch.keep.size)
        self.arrays = watched.copies()  # the arrays of watchers, updated by its losses
        self.waiting: WaitingLosses | None = None  # the losses, if batches are shared with other processes
        self.skipped = 0  # kept samples that need not be observed, in addition to those that loaders leave out
        self.elsewhere: Mask | None = None
        """The samples that other processes had observed when the epoch last continued, shape (samples,)."""
        self.restored: RunState | None = None  # the state that it was restored from, until it continues
        self._sharing_known = False
        """Whether a loader has begun in this epoch, so that others must share batches in the same way."""
        self._of_all = False
        """Whether all observations come from a restored state of all processes, which each of them has."""
        self._before = 0.0  # how many losses of these count
        self._policy, self._watched, self._meter = policy, watched, meter
        self._recent: Array | None = None
        if looks and isinstance(policy, RecentLoss) and epoch.number:  # an average that began with 0 is too low
            self._recent = watched.finished[policy.array]
            self._weight = self._recent.dtype.type(1 / (1 - policy.decay**epoch.number))
        self._has_labels = epoch.number > 0 and watched.guess.has_labels(watched.finished)
        self.wants_labels = watched.guess.wants_labels
        """Whether labels are to be kept; or compared, as those of the first batch if all are known."""

    def rejoin(self, group: Group) -> None:
        """Exchange with the other processes what was observed, in a restored epoch or one whose loop was left.

        Raises :class:`PrunedataError` if the restored state is of another number of processes.
        """
        known = group if self.restored is None else self.restored
        part = (known.rank, known.processes)
        if known.processes not in (1, group.processes):
            raise PrunedataError(
                f"Expected epoch {self.epoch.number} to go on with {known.processes} processes, as it was left: each "
                f"has saved what it observed. Got {group.processes} and the state of rank {known.rank} alone: pass "
                f"load_state_dict() the list of all {known.processes} states, and go on with any number."
            )
        self.leave_to_first(group)
        group.rejoin(part)
        # Batches that wait were cut from the samples that no process had observed before.
        self.elsewhere = self._elsewhere(group, self._settled_here())
        if self.waiting is not None:
            self.waiting.level(group.rank, group.processes, group.add_up)
        self.settle(group.add_up)
        self.elsewhere = self._elsewhere(group, self._seen())

    def _elsewhere(self, group: Group, here: Mask) -> Mask | None:
        """The samples that other processes have, and this one has not; None if there are none."""
        if group.processes == 1:
            return None
        elsewhere = (group.add_up(here.astype(np.float64)) > 0) & (self.tally.visits == 0)
        return np.asarray(elsewhere) if elsewhere.any() else None

    def leave_to_first(self, group: Group) -> None:
        """Leave observations that all processes were restored with to the first of them."""
        if self._of_all and group.rank:
            if self._meter.sums.visits != self._before:
                raise PrunedataError(
                    f"Expected the processes to meet before losses of epoch {self.epoch.number} are observed, as each "
                    "was resumed from the state of all. Got losses that were observed before: wrap the loader, or call "
                    "join(), before the loop."
                )
            self.elsewhere = self.tally.visits != 0
            self.tally, self.arrays = Tally(self.tally.packed.size), self._watched.copies()
            self._meter.count_elsewhere()
        self._of_all = self._of_all and group.processes == 1

    def go_on(self) -> None:
        """Continue with the samples that were not observed yet."""
        self.epoch = replace(self.epoch, rest=read_only(self.epoch.remaining & ~self._seen()))
        self.skipped, self.restored, self._sharing_known = 0, None, False

    def _seen(self) -> Mask:
        """The samples that were observed, here or elsewhere, shape (samples,)."""
        seen = np.not_equal(self.tally.visits, 0)
        return seen if self.elsewhere is None else seen | self.elsewhere

    def _settled_here(self) -> Mask:
        """The observed samples whose losses do not wait, shape (samples,)."""
        seen = self._seen()
        return seen if self.waiting is None else seen & ~self.waiting.waits

    # -- losses

    def add(self, batches: Batches) -> None:
        """Record batches (Algorithm 1, lines 4-8)."""
        all_ids, which = batches.ids, None
        if self.epoch.zero_weights:
            roles = self.epoch.roles[all_ids]
            which, losses = roles == Role.TRAINED, batches.losses[roles == Role.HELD_OUT]
            if losses.size:
                self._meter.sums.held_out_trust += trust_in(losses)
                self._meter.sums.held_out_seen += losses.size
                right, judged = self._watched.guess.judge(self.arrays, batches, roles == Role.HELD_OUT)
                self._meter.sums.held_out_right += right
                self._meter.sums.held_out_judged += judged
        waits = self.waiting is not None and self.waiting.add(all_ids, batches.losses)
        ids, losses, sizes, means, _ = batches = batches if which is None else batches.of(which)
        quiet = waits or not ids.size
        hits = np.zeros(ids.size, np.bool_) if quiet else find_hits(losses, sizes, means, self._policy.tolerance)
        if which is not None:  # samples left out by weight are marked as observed, and count nothing
            spread = np.zeros(all_ids.size, np.bool_)
            spread[which] = hits
            hits = spread
        self.tally.add(all_ids, hits)
        if not ids.size:
            return
        # One after the other: the sum must not depend on where the buffer was full.
        sums = means * sizes
        sums[0] += self._meter.sums.loss_sum
        totals, visits = sums.cumsum(), self._meter.sums.visits
        self._meter.sums.loss_sum = float(totals[-1])
        self._meter.sums.visits += ids.size
        if self._recent is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # losses may be of any size
                some = sizes if sizes.all() else sizes[sizes > 0]
                self._meter.add_rises(losses - self._weight * self._recent[ids], some)
        if waits:  # for the means of their batches; guesses need none
            self._watched.guess.add(self.arrays, batches, self.tally.visits)
            return
        alone = sizes == 1
        if alone.any():  # a loss is never above its own mean: compare it with the mean of the epoch so far
            batches = batches._replace(means=np.where(alone, totals / (visits + sizes.cumsum()), means))
        self._watched.add(self.arrays, batches, self.tally.visits)

    def see_labels(self, ids: Ids, labels: npt.NDArray[np.int64], *, sure: bool) -> None:
        """Keep the labels of some samples, or compare those of the samples that are trained on."""
        self.wants_labels = not self._has_labels
        if self._has_labels:
            trained = self.epoch.trained[ids]
            ids, labels = ids[trained], labels[trained]
        self._watched.guess.see(self.arrays, self.tally.packed.size, ids, labels, known=self._has_labels, sure=sure)

    def share(self, shared: Shared | None, *, recorded: bool) -> None:
        """Let losses wait for the means of shared batches; None: none wait. ``recorded``: some came in this epoch."""
        before, number = None if self.waiting is None else self.waiting.shared, self.epoch.number
        if self._sharing_known and shared != before:
            raise PrunedataError(
                f"Expected loaders that share the batches of epoch {number} among processes in one way. Got one "
                f"with {in_words(shared)} after one with {in_words(before)}: iterate each in epochs of its own, or "
                "call begin_epoch() on all processes between them, and the second delivers what remains."
            )
        if shared is not None and before is None and recorded:
            raise PrunedataError(
                f"Expected the loader to be iterated before losses of epoch {number} are observed, as it shares "
                "batches among processes. Got losses that were observed before: call observe() for what the loader "
                "delivers, and for nothing else."
            )
        self._sharing_known = True
        if shared is not None and self.waiting is None:
            self.waiting = WaitingLosses.none(shared, self.tally.packed.size)

    def refuse_repeats(self) -> None:
        """Raise if a sample whose loss waits for its global batch was observed twice: only one loss can wait."""
        if self.waiting is not None and self.tally.repeats:
            again = int(np.count_nonzero(self.tally.visits > 1))
            raise LossError(
                f"Expected each sample of epoch {self.epoch.number} to be observed once, as the ranks share its "
                f"batches. Got {again} that were observed more often: of several evaluations of a batch, as LBFGS "
                "makes them, observe one; or give each rank a sampler of its own, with which every visit counts."
            )

    def settle(self, add_up: Callable[[Floats], Floats] | None = None) -> None:
        """Resolve waiting losses; without ``add_up``, no other process has any."""
        if self.waiting is not None:
            self.tally, self.arrays = self._settled(add_up)
            self.waiting = None

    @property
    def to_meet(self) -> tuple[Tally | None, Shared | None]:
        """The tally that will be merged; or, if losses wait, how their batches are shared."""
        return (self.tally, None) if self.waiting is None else (None, self.waiting.shared)

    def merged(self, group: Group, *, guessed: bool) -> tuple[Tally, Arrays]:
        """Return tally and arrays over all processes, waiting losses resolved. ``guessed``: some have guesses."""
        if group.processes == 1:
            return self.tally, self.arrays
        if guessed:
            self._watched.guess.level(self.arrays, self.tally.packed.size, group.add_up)
        tally, arrays = self._settled(group.add_up)
        group.merge(tally, arrays)
        return tally, arrays

    def _settled(self, add_up: Callable[[Floats], Floats] | None) -> tuple[Tally, Arrays]:
        """Return tally and arrays with waiting losses resolved, as copies: a failed end of an epoch changes nothing."""
        tally, arrays = self.tally.copy(), {name: array.copy() for name, array in self.arrays.items()}
        if self.waiting is not None:
            sums = (self._meter.sums.loss_sum, float(self._meter.sums.visits))
            batches, against = self.waiting.settle(self.epoch, self._settled_here(), add_up, sums)
            tally.hit(batches.ids[batches.hits(self._policy.tolerance)])
            if batches.ids.size:
                self._watched.add(arrays, batches._replace(means=against), tally.visits)
        return tally, arrays

    def of_counted(self, tally: Tally) -> Tally:
        """Return the tally that the run counts: without visits of samples that were left out by weight."""
        if not self.epoch.zero_weights:
            return tally
        tally = tally.copy()
        tally.packed[~self.epoch.trained] = 0
        tally.observed = int(tally.visits.sum(dtype=np.int64))
        return tally

    # -- whether it was observed whole

    def missing(self, tally: Tally) -> Mask:
        """The kept samples that were not observed, neither in a tally nor elsewhere, shape (samples,)."""
        missing = self.epoch.keep & (tally.visits == 0)
        return np.asarray(missing if self.elsewhere is None else missing & ~self.elsewhere)

    def unseen(self, local: Delivery) -> int:
        """How many samples of this process's source it has not observed; 0 where ``local.left_out`` has them."""
        if self.restored is not None:
            return max(0, (self.restored.unseen or 0) - self.restored.skipped) if self.restored.processes > 1 else 0
        if local.given is None:
            return 0
        if self._needs_losses:
            return int(np.count_nonzero(local.given & self.missing(self.tally)))
        return max(0, int(np.count_nonzero(local.given & self.epoch.keep)) - (local.delivered or 0))

    def with_left_out(self, local: Delivery) -> Delivery:
        """Return the delivery with the samples that no source gave added to ``left_out``."""
        if local.given is None:
            return local
        more = int(np.count_nonzero(self.missing(self.tally) & ~local.given))
        return replace(local, left_out=local.left_out + more)

    def delivery_of_all(self, local: Delivery, tally: Tally, totals: EpochSums, group: Group) -> Delivery:
        """Return the delivery of the loaders of all processes, by that of this one, and tally and sums over all."""
        if group.processes == 1:
            return self.with_left_out(local)
        if local.given is None and not totals.unseen:
            return local
        absent = self.missing(tally)
        left_out = local.left_out + int(np.count_nonzero(absent))
        if totals.unseen <= totals.skipped:  # no process lacks a sample: the absent ones came from no source
            return replace(local, left_out=left_out)
        # A sample that one process lacks may have been observed by another, or lack there, too: exchange which.
        lacking = Tally(absent.size)
        if local.given is not None:
            ids = np.flatnonzero(absent & local.given)
            lacking.add(ids, np.zeros(ids.size, dtype=np.bool_))
        group.merge(lacking, {})
        delivered = None if local.delivered is None else int(totals.delivered)
        left_out -= int(np.count_nonzero(lacking.visits))
        return replace(local, left_out=left_out, delivered=delivered, ended=None)  # in one of them it has not ended

    @property
    def _needs_losses(self) -> bool:
        """Whether losses show which samples were trained on: the policy needs them, or some came."""
        return self._policy.needs_losses or self.tally.observed > 0 or self.elsewhere is not None

    def is_complete(self, delivery: Delivery) -> bool:
        """Whether all was observed, or, where no losses are needed, delivered."""
        delivered = not self._needs_losses and delivery.ended is not None
        return delivered or int(np.count_nonzero(self.missing(self.tally))) <= delivery.left_out + self.skipped

    def check_complete(self, tally: Tally, delivery: Delivery, skipped: int) -> None:
        """Raise :class:`SkippedSamples` if kept samples were not observed, by what all processes have.

        The delivery decides where the policy needs no losses and none came. ``skipped``: kept samples that need not be
        observed.
        """
        epoch, allowed = self.epoch, delivery.left_out + skipped
        remaining = int(np.count_nonzero(epoch.remaining))
        undelivered = 0 if delivery.delivered is None else max(0, remaining - allowed - delivery.delivered)
        by_losses = self._policy.needs_losses or tally.observed
        missed = int(np.count_nonzero(self.missing(tally))) - allowed if by_losses else undelivered
        if missed <= 0:
            return
        told, repeated = "", tally.observed - int(np.count_nonzero(tally.visits))
        if delivery.delivered is not None:
            undelivered = min(missed, undelivered)
            unobserved = missed - undelivered
            if undelivered:
                why = (
                    "was the loop left early, or limited to the batches of a shorter epoch? To stop early on purpose, "
                    "leave the loop over the epochs."
                    if delivery.ended is None
                    else "it ended without them. Is the source filtered, or a mixture that stops where its first part "
                    "ends? Then make the Pruner for the samples that it gives, or call skip() with how many are absent."
                )
                told += f" The loader did not deliver {undelivered} of them: {why}"
            if unobserved and repeated <= 0:  # else a repeated sample may have been delivered in their place
                told += f" {unobserved} of them were delivered, but their losses were not observed."
        if epoch.rest is not None:
            told += (
                " As the epoch was resumed, the loader delivers only what remains of it: skip no batches, as by "
                "skip_first_batches() or by their number."
            )
        if repeated > 0:
            told += (
                f" {repeated} visits were of samples that had been observed before in this epoch: do several workers, "
                "or ranks, give the same ids, or does a mixture of sources give some of its samples more often?"
            )
        raise SkippedSamples(
            f"Expected all {epoch.kept - allowed} kept samples of epoch {epoch.number} to be observed. "
            f"Got {missed} that were not.{told} Call observe() for every batch of the epoch, and pruner.skip() "
            "with the number of samples that you leave out on purpose, as by drop_remainder."
        )

    # -- its state

    @property
    def saved(self) -> Arrays:
        """The arrays to save, by name; not copies."""
        own = {"tally": self.tally.packed} | {f"{OPEN}{name}": array for name, array in self.arrays.items()}
        return own if self.waiting is None else own | self.waiting.arrays

    def restore(self, state: RunState) -> None:
        """Continue from what was saved."""
        self.tally.packed[:] = state.arrays["tally"]
        self.tally.observed = state.observed
        self.arrays = self._watched.saved_open(state.arrays)
        if state.shared is not None:
            self.waiting = WaitingLosses.restored(state.shared, state.arrays)
        self.restored, self._of_all, self._before = state, state.processes == 1, self._meter.sums.visits
        if self._of_all:
            self.settle()

    def delivery_before(self, state: RunState) -> Delivery:
        """Return the delivery at the moment when the restored state was saved."""
        local = Delivery(state.epoch, left_out=state.skipped, ended=0.0 if state.complete else None)
        if state.unseen is None:
            return local
        if state.processes == 1:  # of all processes: other missing samples came from no source
            absent = int(np.count_nonzero(self.missing(self.tally)))
            return replace(local, left_out=state.skipped + max(0, absent - state.unseen))
        return replace(local, given=self.epoch.keep)
