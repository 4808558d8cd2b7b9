"""Advice: how many labels of a run look wrong, and what to leave out, by its validation figures and its losses.

A pure function of what a run has recorded. The unit of the losses does not matter.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, Literal

import numpy as np

from prunedata.checks import integer, shown
from prunedata.errors import PrunedataError
from prunedata.plan import doubts
from prunedata.plan.doubts import APART, NOISE, TURNED, WITHIN, WORSE
from prunedata.plan.onset import Figures, find_onset
from prunedata.plan.schedule import Schedule
from prunedata.policies.protocol import Policy, describe
from prunedata.policies.rules import MEAN_EXCESS, RecentLoss, from_description
from prunedata.store.schema import ADVICE, check
from prunedata.types import Array, Arrays

__all__ = ["ADVISED_POLICY", "Advice", "advise", "losses_of", "newest_of", "recent_of", "seen"]

ADVISED_POLICY = RecentLoss()
"""What is left out: the samples of the highest recent losses."""
LEAVE_OUT = "Leave out that many samples, those with the highest losses."
LABELS_UNKNOWN = (
    "The run doesn't know which label each sample has. Right labels of a rare class look wrong, too: if you have one, "
    "pass labels=... to the Pruner or to observe(), and samples are compared with those of the same label."
)


@dataclass(frozen=True)
class Advice:
    """The advice on a run.

    Attributes
    ----------
    verdict : {"watch", "prune"}
        ``"prune"`` if labels look wrong: once two thirds of the run are done, or sooner where the validation figure or
        the losses show that the network memorizes labels. Otherwise ``"watch"``.
    policy : Policy or None
        What to prune by; None unless the verdict is to prune, as are ``prune`` 0 and ``schedule`` None.
    prune : int
        Samples to leave out of a pruned epoch.
    schedule : Schedule or None
        When to prune: in every epoch after the memorization onset, or in the last third.
    saving_percent : float
        Sample visits that it saves.
    evidence : tuple of str
        Sentences that explain the verdict.
    onset : int or None
        The epoch whose figure showed the memorization onset.
    lost : float
        How far the mean of the last three figures lies below the highest mean so far, in the units of the figure.
    shorter : int or None
        How many epochs to train instead of pruning, with a learning-rate schedule of that length: up to the highest
        figures. None without an onset.
    doubted : int
        How many labels look wrong by their losses; 0 while it is too early to count them. ``prune`` is this number, or
        less where the run has a limit.
    """

    verdict: Literal["watch", "prune"]
    policy: Policy | None
    prune: int
    schedule: Schedule | None
    saving_percent: float
    evidence: tuple[str, ...]
    onset: int | None = None
    lost: float = 0.0
    shorter: int | None = None
    doubted: int = 0

    def __str__(self) -> str:
        return ": ".join((self.verdict, *self.evidence[:1]))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict that JSON can hold."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        plain["policy"] = None if self.policy is None else describe(self.policy)
        plain["schedule"] = None if self.schedule is None else self.schedule.to_dict()
        plain["evidence"] = list(self.evidence)
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "Advice":
        """Return the advice from the result of :meth:`to_dict`. Raises :class:`PrunedataError` for any other value."""
        check("advice", plain, ADVICE)
        policy, schedule = plain["policy"], plain["schedule"]
        if plain["verdict"] == "prune" and None in (policy, schedule):
            raise PrunedataError(f"Expected a policy and a schedule in advice to prune. Got {shown(plain)}.")
        made = {
            "policy": None if policy is None else from_description(policy),
            "schedule": None if schedule is None else Schedule.from_dict(schedule),
            "evidence": tuple(plain["evidence"]),
        }
        return cls(**plain | made)


def advise(
    history: Sequence[Mapping[str, Any]],
    schedule: Schedule,
    losses: Array,
    *,
    prune: int | None = None,
    labels: Array | None = None,
) -> Advice:
    """Advise on a run from what it has recorded so far.

    Parameters
    ----------
    history : sequence of mapping
        ``Pruner.history``, with the figures that :meth:`prunedata.Pruner.validated` was given.
    schedule : Schedule
        The run's schedule, for its number of epochs.
    losses : array of float, shape (samples,)
        A recent average of the losses of each sample that the run may train on, see :func:`losses_of`.
    prune : int, optional
        Leave out at most this many.
    labels : array of int or str, shape (samples,), optional
        The labels of the same samples: each loss is then compared with those of its own label.

    Raises
    ------
    PrunedataError
        If an array is not of shape (samples,), or a record is none.
    """
    if np.ndim(losses) != 1 or (labels is not None and np.shape(labels) != np.shape(losses)):
        got = "" if labels is None else f", and labels of {np.shape(labels)}"
        raise PrunedataError(f"Expected losses of shape (samples,). Got {np.shape(losses)}{got}.")
    for record in history:
        _check_record(record)
    more = (LABELS_UNKNOWN,) if labels is None else ()
    figures, done, late = find_onset(history), len(history), doubts.late_from(schedule.epochs)
    if figures.onset is not None:
        doubted = doubts.count_doubted(_groups(losses, labels), memorizes=True)
        start = max(1, min(figures.onset + 1, schedule.epochs - 1))
        told = f"{doubted:,} of {len(losses):,} labels look wrong by their losses up to the memorization onset"
        because = (f"{told}. {LEAVE_OUT}", *_why_from_onset(figures))
        return _prune(figures, schedule, len(losses), start, doubted, prune, *because, *more)
    apart, worse, turned, within, noise = (
        [record[name] for record in history if name in record] for name in (APART, WORSE, TURNED, WITHIN, NOISE)
    )
    means = [mean for mean, _ in _means(history)]
    untaught = doubts.loss_at_first(means)
    learns = doubts.is_still_learning(within, means)
    met, settled = doubts.have_met(apart) and not learns, doubts.are_settled(turned) and not learns
    many, learned = settled and doubts.are_many_worse(losses, untaught), settled and doubts.are_being_learned(worse)
    forgets = settled and doubts.is_forgetting(within, noise, means)
    doubted, begins = 0, done > 1 and (done >= late or met)  # losses of one epoch tell when a sample came in it
    if begins or ((many or learned or forgets) and done >= doubts.lost_from(schedule.epochs)):
        groups = _groups(losses, labels)
        memorizes = settled and (met or learned or forgets) and doubts.is_wide(groups, worse[-1], forgets=forgets)
        doubted = doubts.count_doubted(groups, untaught=untaught, many=many, memorizes=memorizes)
        begins = begins or memorizes or (many and doubted > 0 and groups.apart < doubts.ONE_GROUP)
    if done == schedule.epochs == 1:
        why = "Losses of one epoch fall while it goes on, so they do not show how many labels are wrong."
        return _watch(figures, why, _figures_so_far(figures, history))
    if not begins:
        told = (
            f"{done} of {schedule.epochs} epochs are done: wrong labels are counted from epoch {late} on, or sooner if "
        )
        return _watch(figures, f"{told}the network begins to memorize them.", _figures_so_far(figures, history))
    beside = "" if labels is None else ", each compared with samples of the same label"
    told = f"{doubted:,} of {len(losses):,} labels look wrong by their recent losses{beside}"
    if not doubted:
        why = f"{told}: the losses fall into no two groups that lie clearly apart."
        return _watch(figures, why, _figures_so_far(figures, history))
    if schedule.epochs <= doubts.SETTLED:
        why = f"A run of at most {doubts.SETTLED} epochs trains on all samples: it is too short to memorize labels."
        return _watch(figures, f"{told}.", why, doubted=doubted)
    start = min(done, late)
    why = _why(start == late, apart if met else (), worse if learned else (), forgets=forgets)
    return _prune(figures, schedule, len(losses), start, doubted, prune, f"{told}. {LEAVE_OUT}", why, *more)


def _why(is_late: bool, met: Sequence[float], learned: Sequence[float], *, forgets: bool) -> str:
    """Why a run begins to leave samples out now, by what it has seen of its losses."""
    if is_late:
        return (
            "The last third of the run is enough: a network recovers within an epoch or two from wrong labels that it "
            "no longer sees."
        )
    if met:
        return (
            f"The network has begun to memorize labels: {max(met):.3f} of the variance of the losses lay between "
            f"their two groups, and now {met[-1]:.3f} does."
        )
    if learned:
        return (
            f"The network has begun to memorize labels: {max(learned):.1%} of the samples had higher losses than the "
            f"run had when it began, and now {learned[-1]:.1%} have."
        )
    if forgets:
        return (
            "The network has begun to memorize labels: losses rise within epochs, as it forgets samples between visits."
        )
    return (
        "A third of the samples or more have higher losses than the run had when it began: their labels contradict "
        "others. The longer the network learns them, the less their losses show."
    )


def seen(
    history: Sequence[Mapping[str, Any]],
    schedule: Schedule,
    losses: Array,
    labels: Array | None,
    *,
    before: Array,
    newest: Array,
) -> dict[str, float]:
    """Return what the record of the last epoch keeps for advice; ``history`` has this epoch, too.

    How far the losses fall into two groups, and the shares of the samples that are worse than at first, and that have
    turned. ``losses`` and ``before`` are recent averages after the epoch and before it, ``newest`` the losses in it.
    """
    found = {APART: _groups(losses, labels).apart}
    if len(history) >= doubts.lost_from(schedule.epochs):
        untaught = doubts.loss_at_first([mean for mean, _ in _means(history)])
        found |= {WORSE: doubts.are_worse(losses, untaught), TURNED: doubts.are_turned(before, newest, untaught)}
    return found


def losses_of(arrays: Arrays, history: Sequence[Mapping[str, Any]]) -> Array:
    """Return a recent average of each sample's losses from a run's saved arrays; without one, the mean of all."""
    if RecentLoss.array in arrays:  # an average that began with 0 lacks what earlier epochs would have weighed
        return np.asarray(recent_of(arrays) / (1 - ADVISED_POLICY.decay ** max(1, len(history))))
    told = _means(history)
    visits = sum(number for _, number in told)
    with np.errstate(over="ignore"):
        return np.asarray(arrays[MEAN_EXCESS] + sum(mean * number for mean, number in told) / max(1, visits))


def recent_of(arrays: Arrays) -> Array:
    """Return the recent average of each sample's losses that ``policy="auto"`` ranks by, from a run's saved arrays."""
    recent, absent = arrays[RecentLoss.array], arrays.get("absent")
    return recent if absent is None else doubts.as_if_visited(recent, arrays["visits"], absent, ADVISED_POLICY.decay)


def newest_of(arrays: Arrays, before: Arrays) -> Array:
    """Return each sample's losses in an epoch, by a run's arrays after it and before it; NaN where it had none."""
    after, earlier = (np.asarray(each[RecentLoss.array], dtype=np.float64) for each in (arrays, before))
    decay = ADVISED_POLICY.decay
    return np.where(after == earlier, np.nan, (after - decay * earlier) / (1 - decay))


def _means(history: Sequence[Mapping[str, Any]]) -> list[tuple[float, int]]:
    """The mean loss of each epoch that has one, and how many visits it is of; sums of huge losses have none."""
    means = ((record["mean_loss"], record["observed"]) for record in history)
    return [(float(mean), number) for mean, number in means if mean is not None and abs(mean) <= sys.float_info.max]


def _check_record(record: Mapping[str, Any]) -> None:
    mean = record.get("mean_loss") if isinstance(record, Mapping) else ""
    if isinstance(mean, str) or not isinstance(mean, Real | None):
        raise PrunedataError(f"Expected records of epochs, as Pruner.history has them. Got {shown(record)}.")
    for name in ("number", "kept", "observed"):
        integer(f"{name} in the record of an epoch", record.get(name), 0)


def _figures_so_far(figures: Figures, history: Sequence[Mapping[str, Any]]) -> str:
    if figures.number:
        return f"{figures.number} of {len(history)} epochs have a validation figure, which has not fallen so far."
    told = "No epoch has a validation figure, which could show that the network memorizes labels"
    if not history or any("held_out" in record for record in history):
        return f"{told}."
    return f"{told}: pass one to validated(), or build the Pruner with holdout=0.05."


def _watch(figures: Figures, *told: str, doubted: int = 0) -> Advice:
    return Advice("watch", None, 0, None, 0.0, told, lost=max(0.0, figures.lost), doubted=doubted)


def _groups(losses: Array, labels: Array | None) -> doubts.Groups:
    """The two groups of losses, or of how far each lies above those of its own label."""
    if labels is None:
        return doubts.two_groups(losses)
    numbers = np.unique(labels, return_inverse=True)[1]
    return doubts.two_groups(doubts.above_own(losses, numbers), losses)


def _prune(
    figures: Figures, schedule: Schedule, samples: int, start: int, doubted: int, most: int | None, *evidence: str
) -> Advice:
    """Advice to leave the doubted samples out of every epoch from `start` on, but at most so many."""
    number, epochs = doubted if most is None else min(doubted, most), schedule.epochs
    return Advice(
        verdict="prune",
        policy=ADVISED_POLICY,
        prune=number,
        schedule=Schedule.steady(epochs, start, anneal=schedule.anneal),
        saving_percent=100 * number * max(0, epochs - start) / (epochs * samples),
        evidence=evidence,
        onset=figures.onset,
        lost=max(0.0, figures.lost),
        shorter=None if figures.onset is None else (figures.best or 0) + 1,
        doubted=doubted,
    )


def _why_from_onset(figures: Figures) -> tuple[str, str, str]:
    """Why to leave samples out of a run whose figures have fallen."""
    return (
        f"The validation figure has fallen: its mean over three epochs was highest around epoch {figures.best}, and by "
        f"epoch {figures.onset} it had fallen by more than chance explains. From there on the network memorizes single "
        "samples, such as those with wrong labels.",
        f"The mean over the last three epochs is {figures.lost:.3g} below the highest.",
        f"Or train only {(figures.best or 0) + 1} epochs, with a learning-rate schedule of that length.",
    )
