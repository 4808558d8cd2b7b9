"""When a run prunes and how much: by its schedule, or by advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from prunedata.checks import warn
from prunedata.errors import NeverPrunesWarning, PrunedataError
from prunedata.plan import doubts
from prunedata.plan.cost import count_kept
from prunedata.plan.schedule import Schedule
from prunedata.policies.protocol import Known
from prunedata.policies.rules import RecentLoss
from prunedata.policies.selection import draw_holdout
from prunedata.run.epoch import Epoch, Role, read_only, select
from prunedata.store.state import LABEL
from prunedata.types import Array, Arrays, Counts, Mask, Roles

if TYPE_CHECKING:
    from prunedata.findings.advice import Advice
    from prunedata.run.identity import Identity
    from prunedata.run.ledger import Ledger
    from prunedata.run.options import RunOptions

MANY = 0.05
"""Fewer doubted samples than this share may stay, without a warning, where epochs are rounded up to whole batches."""


class Pruning:
    """When a run prunes and how much, and which samples it holds out or leaves out for good.

    With ``auto`` it prunes nothing before there is advice, and then follows that.
    """

    def __init__(self, options: RunOptions, identity: Identity) -> None:
        self._options, self.schedule, self._identity = options, options.schedule, identity
        self.advice: Advice | None = None
        self.roles: Roles = np.broadcast_to(Role.TRAINED, (options.samples,))
        """The role of each sample in an epoch that isn't pruned, shape (samples,), see :class:`Role`. Read-only."""
        self.trainable = options.samples  # how many samples have the role TRAINED
        self.num_held_out = self.num_without = 0  # how many are held out, and left out for good
        self._drawn: Mask | None = None  # the held-out samples that the seed draws
        self._moved = False  # whether other samples are held out than the seed draws, as the run has followed its rows
        if not (options.leave_out == "nothing" or options.auto):
            self._warn_if_idle()
        if options.holdout is not None:
            self._drawn = draw_holdout(options.samples, options.holdout, options.seed)
        self.restore(options.without, None)

    @property
    def num_pruned(self) -> int:
        """How many samples a pruned epoch leaves out (PruningNum), whole batches kept."""
        prune = self._options.prune if self.advice is None else min(self._options.prune, self.advice.prune)
        return self.trainable - count_kept(self.trainable, prune, self._options.batch_size)

    @property
    def keeps_doubted(self) -> bool:
        """Whether whole batches keep all of the samples that a run was advised to leave out, if these are many."""
        options, advice = self._options, self.advice
        advised = 0 if advice is None or options.leave_out == "nothing" else min(options.prune, advice.prune)
        return advised > MANY * self.trainable and not self.num_pruned

    @property
    def among(self) -> Mask | None:
        """The samples that epochs may train on, shape (samples,); None for all."""
        return None if self.trainable == self.roles.size else self.roles == Role.TRAINED

    def restore(self, without: Mask | None, held_out: Mask | None) -> None:
        """Take the roles of a restored state, see :meth:`roles_with`."""
        roles = self.roles_with(without, held_out)
        if roles is not self.roles:
            self.roles = read_only(roles)
            self.num_without, self.trainable, _, self.num_held_out = np.bincount(roles, minlength=4).tolist()
        self._moved = held_out is not None and self._drawn is not None

    def roles_with(self, without: Mask | None, held_out: Mask | None) -> Roles:
        """Return the roles with more samples left out for good, or with other samples held out, as a state has them.

        ``held_out`` is None unless its rows have moved: then the seed draws them. Raises if too few samples remain.
        """
        held_out = self._drawn if held_out is None or self._drawn is None else held_out
        if held_out is None and (without is None or not without.any()):
            return self.roles
        left_out = self.roles == Role.LEFT_OUT
        if without is not None:
            left_out |= without
        delivered = Role.TRAINED if held_out is None else np.where(held_out, Role.HELD_OUT, Role.TRAINED)
        roles = np.where(left_out, Role.LEFT_OUT, delivered)
        rest, prune = int(np.count_nonzero(roles == Role.TRAINED)), self._options.prune
        if rest <= prune:
            told = "left out for good: prune less"
            if held_out is not None and np.count_nonzero(~held_out) <= prune:
                told = "held out: hold fewer out, or prune less"
            raise PrunedataError(
                f"Expected more samples than the {prune} that pruned epochs leave out. Got {rest} that are not {told}."
            )
        return roles

    @property
    def saved(self) -> Arrays:
        """The arrays to save, by name; held-out samples only if the seed does not draw them."""
        saved = {"without": Role.LEFT_OUT} if self.num_without else {}
        saved |= {"held_out": Role.HELD_OUT} if self._moved else {}
        return {name: (self.roles == role).astype(np.uint8) for name, role in saved.items()}

    def would_prune(self, epoch: int) -> bool:
        """Whether epoch number ``epoch`` would be pruned if the run did not only observe."""
        decided = not self._options.auto or (self.advice is not None and self.advice.verdict == "prune")
        return decided and self.schedule.prunes(epoch)

    def prunes(self, epoch: int) -> bool:
        """Whether epoch number ``epoch`` is pruned."""
        return self._options.leave_out != "nothing" and self.would_prune(epoch)

    def kept_in(self, epoch: int) -> int:
        """How many samples epoch number ``epoch`` delivers."""
        shortened = self._options.leave_out == "delivery" and self.prunes(epoch)
        delivered = self.roles.size - self.num_without
        return delivered - self.num_pruned if shortened else delivered

    def next_epoch(self, ledger: Ledger) -> Epoch:
        """Return the next epoch with the roles of its samples, by the finished epochs."""
        options, number, num_pruned = self._options, ledger.next_epoch, self.num_pruned
        pruned, by_weight = self.prunes(number), options.leave_out == "weight"
        roles, weights, trained = self.roles, None, self.trainable
        if pruned and num_pruned:
            counts, arrays, among = ledger.counts, ledger.arrays.finished, self.among
            if options.auto:
                seen = self.observed(counts.visits)
                if seen is not None and np.count_nonzero(seen) >= num_pruned:  # else rows have moved away
                    among = seen
                recent, labels = self._recent(ledger), self._labels_in(arrays, among)
                if labels is not None:  # compare each loss with those of its own label
                    recent = doubts.above_own(recent, labels, among)
                arrays = arrays | {RecentLoss.array: recent}
            known = Known(counts.counts, counts.hits, counts.visits, arrays, num_pruned)
            keep, weights = select(options.chosen, known, seed=options.seed, epoch=number, among=among)
            out = Role.ZERO_WEIGHT if by_weight else Role.LEFT_OUT
            roles = np.where((roles == Role.TRAINED if among is None else among) & ~keep, out, roles)
            trained -= num_pruned
        # By weight, a trainer may also deliver samples that are left out for good.
        zero_weights = options.holdout is not None or (by_weight and trained < roles.size)
        if zero_weights and weights is None:
            weights = read_only((roles == Role.TRAINED).astype(np.float32))
        return Epoch(number, pruned, read_only(roles), options.seed, weights, zero_weights)

    def observed(self, visits: Counts) -> Mask | None:
        """The samples that epochs may train on and that were observed, shape (samples,); None for all."""
        return doubts.observed(visits, self.among)

    def advise(self, ledger: Ledger) -> Advice:
        """Return advice by the finished epochs; with ``auto`` it leaves out no more than the run may."""
        from prunedata.findings.advice import advise  # noqa: PLC0415 (only where a run is to be advised)

        losses, labels = self._losses(ledger.history, self.saved_of(ledger), self.observed(ledger.counts.visits))
        most = self._options.prune if self._options.auto else None
        return advise(ledger.history, self._options.schedule, losses, labels=labels, prune=most)

    @property
    def looks(self) -> bool:
        """Whether it still looks for labels to doubt."""
        return self._options.auto and self.advice is None

    def seen(self, ledger: Ledger, before: Arrays) -> dict[str, float]:
        """Return what the record of the last epoch keeps for advice; ``before`` is :meth:`saved_of` before it."""
        from prunedata.findings.advice import newest_of, seen  # noqa: PLC0415 (only "auto" looks)

        history, arrays, schedule = ledger.history, self.saved_of(ledger), self._options.schedule
        if len(history) < doubts.onset_from(schedule.epochs):
            return {}
        among = self.observed(ledger.counts.visits)
        newest, (earlier, _) = newest_of(arrays, before), self._losses(history[:-1], before, among)
        newest = newest if among is None else newest[among]
        return seen(history, schedule, *self._losses(history, arrays, among), before=earlier, newest=newest)

    def saved_of(self, ledger: Ledger) -> Arrays:
        """The arrays of the finished epochs, as they are saved: with ``visits``, and ``absent`` if it is known."""
        return ledger.saved | self._identity.arrays

    def _recent(self, ledger: Ledger) -> Array:
        from prunedata.findings.advice import recent_of  # noqa: PLC0415 (as above)

        return recent_of(self.saved_of(ledger))

    def _labels_in(self, arrays: Arrays, among: Mask | None) -> Array | None:
        given = self._options.labels
        return doubts.known_labels(None if given is None else given.numbers, arrays.get(LABEL), among)

    def _losses(
        self, history: Sequence[Mapping[str, Any]], arrays: Arrays, among: Mask | None
    ) -> tuple[Array, Array | None]:
        """Recent losses of the samples in ``among``, and the numbers of their labels if known."""
        from prunedata.findings.advice import losses_of  # noqa: PLC0415 (as above)

        losses, labels = losses_of(arrays, history), self._labels_in(arrays, among)
        if among is None:
            return losses, labels
        return losses[among], None if labels is None else labels[among]

    def lengthens(self, stored: Schedule) -> bool:
        """Whether the given schedule is a stored one with more epochs, and else the same."""
        given = self._options.schedule
        if given.epochs <= stored.epochs or not _anneal_alike(given, stored):
            return False
        stored = replace(stored, anneal=min(given.anneal, stored.epochs))  # counted from the end, which moves
        if _is_steady(given) and _is_steady(stored):
            return True
        if isinstance(given.window, tuple) and isinstance(stored.window, tuple):
            same = replace(given, epochs=stored.epochs, window=stored.window) == stored
            return same and given.windows[: len(stored.windows) - 1] == stored.windows[:-1]
        # One window for the whole run may grow with it.
        one = given.reading == "aligned" and _is_one_window(given) and _is_one_window(stored)
        same = replace(given, epochs=stored.epochs, window=stored.window) == stored
        return same and (one or given.window == stored.window)

    def lengthened(self, in_force: Schedule, stored: Schedule, begun: int) -> Schedule:
        """Return the schedule in force of a stored run with the epochs of the given one, ``begun`` of them begun."""
        given, epochs = self._options.schedule, self._options.schedule.epochs
        if in_force == stored:  # a run that has begun to prune keeps its start
            return replace(given, start=stored.start) if stored.start < begun else given
        more: dict[str, Any] = {"epochs": epochs, "anneal": given.anneal}
        if isinstance(in_force.window, int):  # as advised: one window for the whole run
            return replace(in_force, **more, window=max(epochs, in_force.window))
        missing = epochs - sum(in_force.window)
        last = in_force.window[-1]
        return replace(in_force, **more, window=(*in_force.window, *[last] * max(0, -(-missing // last))))

    def _warn_if_idle(self) -> None:
        """Warn if no epoch is pruned, or pruned epochs keep everything."""
        schedule = self.schedule
        if not schedule.ever_prunes:
            why = f"no epoch of {schedule} is pruned: {_why_idle(schedule)}"
        elif not self.num_pruned:
            why = f"pruned epochs keep all {self.roles.size} samples: raise prune, or lower batch_size"
        else:
            return
        warn(f"Expected a run that prunes. Got one that never does: {why}.", NeverPrunesWarning)


def _is_steady(schedule: Schedule) -> bool:
    """Whether :meth:`Schedule.steady` made it, with the start that it chooses by the epochs."""
    return schedule == Schedule.steady(schedule.epochs, anneal=schedule.anneal)


def _anneal_alike(one: Schedule, other: Schedule) -> bool:
    """Whether as many epochs anneal, or as many as one fraction of the epochs gives, rounded up."""
    lowest = max(Fraction(int(each.anneal) - 1, each.epochs) for each in (one, other))
    highest = min(Fraction(int(each.anneal), each.epochs) for each in (one, other))
    return one.anneal == other.anneal or lowest < highest


def _is_one_window(schedule: Schedule) -> bool:
    return isinstance(schedule.window, int) and schedule.window >= schedule.epochs


def _why_idle(schedule: Schedule) -> str:
    if not schedule.pruned_per_block:
        return "let pruned_per_block be at least 1"
    if schedule.epochs - int(schedule.anneal) <= schedule.start < schedule.longest_window:
        after = f" less the last {schedule.anneal}, which anneal" if schedule.anneal else ""
        return f"let start be less than the epochs, {schedule.epochs}{after}"
    return "let start be less than the window"
