"""The epoch that is open: what was observed of it, and whether anything of it is left to train on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from prunedata.counting.batches import Batches
from prunedata.counting.counts import CHUNK, Tally, find_hits
from prunedata.counting.sample_arrays import OPEN, SampleArrays
from prunedata.counting.waiting import Shared, WaitingLosses, in_words
from prunedata.errors import LossError, PrunedataError, SkippedSamples
from prunedata.plan.turn import trust_in
from prunedata.policies.rules import MEAN_EXCESS
from prunedata.run.adapter import Delivery
from prunedata.run.epoch import Epoch, read_only
from prunedata.run.group import Group, GroupTotals
from prunedata.run.meter import Meter
from prunedata.store.state import RunState
from prunedata.types import Array, Arrays, Floats, Mask

__all__ = ["OpenEpoch", "Restored"]


@dataclass(frozen=True)
class Restored:
    """What an epoch was saved with, until it goes on.

    Attributes
    ----------
    delivery : Delivery
        What the loaders had said.
    rank, processes : int
        Which of how many processes the state is of; 0 and 1 if it is of all together.
    unseen : int
        Samples that the process was given and had not observed.
    """

    delivery: Delivery
    rank: int
    processes: int
    unseen: int = 0


class OpenEpoch:
    """What is known of an epoch while it is open.

    Parameters
    ----------
    epoch : Epoch
    watched : SampleArrays
        As the finished epochs left them. Not changed.
    meter : Meter
        Adds up its losses.
    holdout : ndarray of bool, shape (samples,), or None
        The samples that are held out.

    Attributes
    ----------
    tally : Tally
        Its visits and hits.
    arrays : dict of ndarray, shape (samples,)
        Those of watchers, with its losses.
    waiting : WaitingLosses or None
        Its losses, if their batches are shared with other processes.
    skipped : int
        Kept samples that need not be observed, beside those that loaders leave out.
    known : Tally or None
        Of what was observed, the part that all processes know. It counts on the first of them.
    known_excess : ndarray of float32, shape (samples,), or None
        The sums of losses that belong to it.
    restored : Restored or None
        What it was saved with, if it was and has not gone on since.
    """

    def __init__(self, epoch: Epoch, watched: SampleArrays, meter: Meter, holdout: Mask | None = None) -> None:
        self.epoch = epoch
        self.tally = Tally(epoch.keep.size)
        self.arrays = watched.copies()
        self.waiting: WaitingLosses | None = None
        self.skipped = 0
        self.known: Tally | None = None
        self.known_excess: Array | None = None
        self.restored: Restored | None = None
        self._sharing_known = False
        """Whether a loader has begun since the epoch did, so that others must share batches as it does."""
        self._losses_known = False
        """Whether the losses so far are those of all processes."""
        self._watched, self._meter, self._held_out = watched, meter, holdout

    def rejoin(self, group: Group, tolerance: float) -> None:
        """Go on with what all processes have observed, of a state that was restored or of an epoch that was left."""
        here = (group.rank, group.processes)
        part = here if self.restored is None else (self.restored.rank, self.restored.processes)
        self.count_once(group)
        if group.processes > 1:
            self.tally, self.arrays = self.own(group), self.own_arrays(group)
        waiting = {} if self.waiting is None else self.waiting.arrays
        group.rejoin(part, self.tally, self.arrays | waiting)
        self.settle(tolerance)
        if group.processes > 1:
            self._remember()

    def go_on(self) -> None:
        """Go on with what remains."""
        self.epoch = replace(self.epoch, remaining=read_only(self.epoch.remaining & (self.tally.visits == 0)))
        self.skipped, self.restored, self._sharing_known = 0, None, False

    def own(self, group: Group) -> Tally:
        """What counts on this process of what was observed. A copy."""
        own = self.tally.copy()
        if self.known is not None and group.rank:
            own.packed -= self.known.packed
            own.observed -= self.known.observed
        return own

    def own_arrays(self, group: Group) -> Arrays:
        """The arrays, with the sums that count on this process."""
        if self.known_excess is None or not group.rank:
            return self.arrays
        return self.arrays | {MEAN_EXCESS: self.arrays[MEAN_EXCESS] - self.known_excess}

    def _remember(self) -> None:
        """What has been observed so far, all processes know."""
        self.known, sums = self.tally.copy(), self.arrays.get(MEAN_EXCESS)
        self.known_excess = None if sums is None else sums.copy()

    def count_once(self, group: Group) -> None:
        """Let losses that are those of all processes count on the first of them."""
        if self._losses_known and group.rank:
            self._meter.count_elsewhere()
        self._losses_known = self._losses_known and group.processes == 1

    # -- losses

    def add(self, batches: Batches, tolerance: float) -> None:
        """Record batches (Algorithm 1, lines 4-8)."""
        all_ids, which = batches.ids, None if self.epoch.which_count is None else self.epoch.which_count[batches.ids]
        if self._held_out is not None:
            losses = batches.losses[self._held_out[all_ids]]
            self._meter.held_out_trust += trust_in(losses)
            self._meter.held_out_seen += losses.size
        waits = self.waiting is not None and self.waiting.add(all_ids, batches.losses)
        ids, losses, sizes, means = batches = batches if which is None else batches.of(which)
        hits = np.zeros(ids.size, np.bool_) if waits or not ids.size else find_hits(losses, sizes, means, tolerance)
        if which is not None:  # what was left out by weight has been seen: it does not come again, and counts nothing
            spread = np.zeros(all_ids.size, np.bool_)
            spread[which] = hits
            hits = spread
        self.tally.add(all_ids, hits)
        if not ids.size:
            return
        if not waits:
            self._watched.add(self.arrays, batches, self.tally.visits)
        # One after the other: the sum must not depend on where a buffer was full.
        sums = means * sizes
        sums[0] += self._meter.loss_sum
        self._meter.loss_sum = float(sums.cumsum()[-1])
        self._meter.visits += ids.size

    def share(self, shared: Shared | None, *, recorded: bool) -> None:
        """Let losses wait for the means of batches that processes share, or none wait.

        ``recorded`` says whether some were recorded since the epoch was begun or gone on with.
        """
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
        """Raise if samples were observed again that wait for the means of their global batches: one loss waits."""
        if self.waiting is not None and self.tally.repeats:
            again = int(np.count_nonzero(self.tally.visits > 1))
            raise LossError(
                f"Expected each sample of epoch {self.epoch.number} to be observed once, as the ranks share its "
                f"batches. Got {again} that were observed more often: of several evaluations of a batch, as LBFGS "
                "makes them, observe one; or give each rank a sampler of its own, with which every visit counts."
            )

    def settle(self, tolerance: float) -> None:
        """Let nothing wait: what waits is all that any process has observed."""
        if self.waiting is not None:
            self.tally, self.arrays = self._settled(tolerance)
            self.waiting = None

    @property
    def to_meet(self) -> tuple[Tally | None, Shared | None]:
        """The tally that will be merged; or if losses wait for the means of their batches, how these are shared."""
        return (self.tally, None) if self.waiting is None else (None, self.waiting.shared)

    def merged(self, group: Group, tolerance: float) -> tuple[Tally, Arrays]:
        """The tally and the arrays, with what waits, over all processes."""
        if group.processes == 1:
            return self.tally, self.arrays
        # On copies: should the epoch not end, as samples were skipped, nothing may be merged twice.
        if self.waiting is not None:
            tally, arrays = self._settled(tolerance, group.add_up)
        else:
            tally, arrays = self.own(group), {name: array.copy() for name, array in self.own_arrays(group).items()}
        group.merge(tally, arrays)
        return tally, arrays

    def _settled(self, tolerance: float, add_up: Callable[[Floats], Floats] | None = None) -> tuple[Tally, Arrays]:
        tally, arrays = self.tally.copy(), {name: array.copy() for name, array in self.arrays.items()}
        if self.waiting is not None:
            batches = self.waiting.settle(self.epoch, self.tally.packed != 0, add_up)
            tally.hit(batches.ids[batches.hits(tolerance)])
            if batches.ids.size:
                self._watched.add(arrays, batches, tally.visits)
        return tally, arrays

    def of_counted(self, tally: Tally) -> Tally:
        """What the run counts of an epoch that was seen whole: no visit of what was left out by weight."""
        counted = self.epoch.which_count
        if counted is None:
            return tally
        tally = tally.copy()
        tally.packed[~counted] = 0
        tally.observed = int(tally.visits.sum(dtype=np.int64))
        return tally

    # -- whether it was seen whole

    def missing(self, tally: Tally) -> Mask:
        """Which kept samples were not observed, shape (samples,)."""
        return np.asarray(self.epoch.keep & (tally.visits == 0))

    def unseen(self, said: Delivery, *, needs_losses: bool) -> int:
        """How many samples this process was given and has not observed; 0 where it follows from ``said.left_out``."""
        if self.restored is not None:
            return self.restored.unseen
        if said.given is None:
            return 0
        if needs_losses or self.tally.observed:
            return int(np.count_nonzero(said.given & self.missing(self.tally)))
        return max(0, int(np.count_nonzero(said.given & self.epoch.keep)) - (said.delivered or 0))

    def with_left_out(self, said: Delivery) -> Delivery:
        """What the loaders say, with ``left_out`` as it follows from what their sources gave."""
        if said.given is None:
            return said
        more = int(np.count_nonzero(self.missing(self.tally) & ~said.given))
        return replace(said, left_out=said.left_out + more)

    def said_by_all(self, said: Delivery, tally: Tally, totals: GroupTotals, group: Group) -> Delivery:
        """What the loaders of all processes say.

        Parameters
        ----------
        said : Delivery
            By the loaders of this process.
        tally : Tally
            What was observed, in all processes.
        totals : GroupTotals
            The sums over all processes.
        group : Group
        """
        if said.given is None and not totals.unseen:
            return said
        absent = self.missing(tally)
        left_out = said.left_out + int(np.count_nonzero(absent))
        if totals.unseen <= totals.skipped:  # no process lacks a sample: what is absent none was given
            return replace(said, left_out=left_out)
        # What one process lacks another may have seen, or lack too. So they tell each other which samples that is.
        lacking = Tally(absent.size)
        if said.given is not None:
            ids = np.flatnonzero(absent & said.given)
            lacking.add(ids, np.zeros(ids.size, dtype=np.bool_))
        group.merge(lacking, {})
        delivered = None if said.delivered is None else int(totals.delivered)
        return replace(said, left_out=left_out - int(np.count_nonzero(lacking.visits)), delivered=delivered)

    def is_complete(self, delivery: Delivery, *, needs_losses: bool) -> bool:
        """Whether nothing is left to train on: all was observed, or where no losses are needed, delivered."""
        delivered = not needs_losses and delivery.ended is not None and not self.tally.observed
        return delivered or self._missed(self.tally) <= delivery.left_out + self.skipped

    def check_complete(self, tally: Tally, delivery: Delivery, skipped: int, *, needs_losses: bool) -> None:
        """Raise :class:`SkippedSamples` if kept samples were not observed.

        Parameters
        ----------
        tally : Tally
            What was observed, in all processes.
        delivery : Delivery
            What the loaders say. Where the policy needs no losses and none came, what they delivered has to do.
        skipped : int
            Kept samples that need not be observed, in all processes.
        needs_losses : bool
        """
        epoch, allowed = self.epoch, delivery.left_out + skipped
        remaining = int(np.count_nonzero(epoch.remaining))
        undelivered = 0 if delivery.delivered is None else max(0, remaining - allowed - delivery.delivered)
        missed = self._missed(tally) - allowed if needs_losses or tally.observed else undelivered
        if missed <= 0:
            return
        told = ""
        if delivery.delivered is not None:
            undelivered = min(missed, undelivered)
            unobserved = missed - undelivered
            if undelivered:
                told += (
                    f" The loader did not deliver {undelivered} of them: was the loop left early, or its length frozen?"
                    " To stop early on purpose, leave the loop over the epochs."
                )
            if unobserved:
                told += f" {unobserved} of them were delivered, but their losses not observed."
        repeated = tally.observed - int(np.count_nonzero(tally.visits))
        if repeated > 0:
            told += (
                f" {repeated} visits were of samples that had been observed before in this epoch: do several workers, "
                "or ranks, give the same ids?"
            )
        raise SkippedSamples(
            f"Expected all {epoch.kept - allowed} kept samples of epoch {epoch.number} to be observed. "
            f"Got {missed} that were not.{told} Call observe() for every batch of the epoch."
        )

    def _missed(self, tally: Tally) -> int:
        keep = self.epoch.keep
        parts = (slice(first, first + CHUNK) for first in range(0, keep.size, CHUNK))  # no copies of all samples
        return sum(int(np.count_nonzero(keep[part] & (tally.visits[part] == 0))) for part in parts)

    # -- its state

    def saved(self, tally: Tally, arrays: Arrays) -> Arrays:
        """What is saved of it, by the names under which it is, with the tally and arrays that count here; not copies.

        ``arrays`` are those of :meth:`own_arrays`.
        """
        own = {"tally": tally.packed} | {f"{OPEN}{name}": array for name, array in arrays.items()}
        return own if self.waiting is None else own | self.waiting.arrays

    def restore(self, state: RunState) -> None:
        """Take over what was saved of it."""
        self.tally.packed[:] = state.arrays["tally"]
        self.tally.observed = state.observed
        self.arrays = self._watched.saved_open(state.arrays)
        if state.shared is not None:
            self.waiting = WaitingLosses.restored(state.shared, state.arrays)
        self.restored = self._restored(state)
        self._losses_known = state.processes == 1
        if state.processes == 1:
            self._remember()

    def _restored(self, state: RunState) -> Restored:
        said = Delivery(state.epoch, left_out=state.skipped, ended=0.0 if state.complete else None)
        if state.unseen is None:
            return Restored(said, state.rank, state.processes)
        if state.processes == 1:  # of all: what else is missing nobody was given
            absent = int(np.count_nonzero(self.missing(self.tally)))
            said = replace(said, left_out=state.skipped + max(0, absent - state.unseen))
            return Restored(said, state.rank, state.processes)
        unseen = max(0, state.unseen - state.skipped)
        return Restored(replace(said, given=self.epoch.keep), state.rank, state.processes, unseen)
