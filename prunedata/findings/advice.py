"""What to do with a run that was watched: prune it, and how, or save by fewer epochs; and on what evidence.

Advice is a pure function of what a run has counted. No test set, no label and no network comes in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal

import numpy as np

from prunedata.checks import integer, real, shown
from prunedata.errors import PrunedataError
from prunedata.findings.by_heart import FIRST, above_guess, epochs_before, learns_fast
from prunedata.findings.suspects import check_counts
from prunedata.findings.wrong_labels import Estimate, by_high, by_hits
from prunedata.plan.cost import count_pruned
from prunedata.plan.schedule import Schedule
from prunedata.policies.built_in import from_description
from prunedata.policies.protocol import Policy, describe
from prunedata.policies.running_loss import RunningLoss
from prunedata.types import Array

__all__ = ["ADVISED_POLICY", "Advice", "advise"]


ADVISED_POLICY = RunningLoss()
"""What is advised wherever pruning is: wherever labels were wrong at random it ended above fewer epochs with as many
visits, in each pair of runs (docs/evidence/results.md)."""
WATCHED_PART = 6
"""Watch a sixth of the run: after it the signs were calibrated, and from there on pruning was measured."""
FEWEST_VISITS = 5
"""After so many visits the signs are there, in runs of 30 epochs of the subjects in docs/evidence/advice.md, and
of LeNet on 10,000 images of CIFAR-10: likely and certain .093 and .034 with clean labels, .179 and .081 with 20%
wrong at random, .245 and .110 with 40%."""
LEAST_JUDGED = 0.9
"""Of the samples that were visited at all. What a run has pruned all along it visits least and suspects most: without
these, wrong labels are not found."""
PRUNE_MOST = 0.4
"""Hardly more was measured, and it gained nothing (docs/evidence/frontier.md)."""
MANY = 0.25
"""Wrong labels from which as many are left out as are hard: most of these are wrong then, and too few left out cost
more than too many. With 40% wrong, conv-digits of ``benchmarks.frontier`` ends at 83.2 with half as many left out as
are wrong, at 95.4 with as many, and at 94.6 with half as many again. With 20%, mlp-letters lost 2.7 points in a trial
with as many as are hard: a quarter of these are right, and rare."""
USUAL_SAVING = 0.14
"""What to save by fewer epochs where the run itself plans no saving: about the paper's 14%."""
PRUNING_PAYS = (
    "Measured, a quarter to a third of the visits saved; each pair is test points against regular training, and "
    "against fewer epochs with as many visits. 1,437 digits, LeNet, 20% of the labels wrong at random: +14 and +13; "
    "40%: +29 and +28; WRN-10, 20%: +8 and +6; 40%: +25 and +16. CIFAR-10, LeNet, 10,000 images, 20%: +0.9 and +1.4; "
    "40%: +1.0 and +1.7; all 50,000, 40%: -0.9 and +1.0; 10,000 with 41% of people's errors, a sixth saved: -0.7 and "
    "-0.3."
)
SHORTER_PAYS = (
    "measured, where wrong labels are learnt by heart fast, that brings most of what pruning does, and tuned weight "
    "decay or dropout adds to it."
)
NOT_BY_HEART = (
    "So far nothing shows that the network learns wrong labels by heart. If people made them, pruning may cost: such "
    "errors look like other classes, and are found less well. On CIFAR-10 LeNet, which never learnt them by heart, "
    "ended 0.3 below fewer epochs with as many visits, and 1.4 above where as many seemed wrong and were so at random."
)
PRUNING_COSTS = (
    "Measured with LeNet on 10,000 samples of CIFAR-10, 120 epochs, clean labels, 25% of visits saved, in test points "
    "against regular training: RunningLoss -2.8; the paper's rule -1.6; at random on its schedule -0.6; fewer epochs "
    "-0.8."
)


@dataclass(frozen=True)
class Advice:
    """What to do with a run.

    Attributes
    ----------
    verdict : {"watch", "prune", "fewer epochs"}
        Watch on, as it is too early to tell; prune; or save time, if it has to be saved, by fewer epochs.
    policy : Policy or None
        What to prune by; None unless the verdict is to prune, as are ``prune`` 0 and ``schedule`` None.
    prune : int
        Samples to leave out of a pruned epoch, 40% at most: as many as seem wrong; or as are hard, where a quarter
        or more seem wrong, or wrong labels are learnt by heart fast.
    schedule : Schedule or None
        When to prune.
    saving_percent : float
        Sample visits that it saves: by pruning, or by ``epochs``; 0 while the verdict is to watch.
    wrong_labels : float or None
        Share of the labels that seem wrong at random, 0 to 0.6; None if nothing can be said.
    wrong_labels_range : (float, float) or None
        From the lowest share to the highest that fits what was seen, errors that look like another class among them: a
        run can't tell these from hard samples. Up to 1 if it can't tell which samples are hard.
    wrong_labels_range_at_random : (float, float) or None
        The same for labels that are wrong at random: it lies within ``wrong_labels_range``.
    epochs : int
        How many epochs to train in all.
    shorter : int or None
        About how many to train instead of pruning, with a learning-rate schedule of their own: the run has learnt
        wrong labels by heart from there on. None if it hasn't, or if it can't be seen.
    watch_epochs : int
        Epochs to watch on, or of the next run if this one is finished; 0 unless the verdict is to watch.
    evidence : tuple of str
        Sentences: what was seen, and what was measured where.
    """

    verdict: Literal["watch", "prune", "fewer epochs"]
    policy: Policy | None
    prune: int
    schedule: Schedule | None
    saving_percent: float
    wrong_labels: float | None
    wrong_labels_range: tuple[float, float] | None
    epochs: int
    watch_epochs: int
    evidence: tuple[str, ...]
    shorter: int | None = None
    wrong_labels_range_at_random: tuple[float, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict that JSON can hold."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        plain["policy"] = None if self.policy is None else describe(self.policy)
        plain["schedule"] = None if self.schedule is None else self.schedule.to_dict()
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "Advice":
        """Return what :meth:`to_dict` was called on. Raises :class:`PrunedataError` if it is nothing of the kind."""
        # Older stores lack what has a default.
        known, needed = {one.name for one in fields(cls)}, {one.name for one in fields(cls) if one.default is MISSING}
        if not isinstance(plain, dict) or not needed <= plain.keys() <= known:
            raise PrunedataError(f"Expected advice as Advice.to_dict() gives it. Got {shown(plain)}.")
        try:
            policy, schedule, shorter = plain["policy"], plain["schedule"], plain.get("shorter")
            found = cls(
                verdict=plain["verdict"],
                policy=None if policy is None else from_description(policy),
                prune=integer("prune", plain["prune"], 0),
                schedule=None if schedule is None else Schedule.from_dict(schedule),
                saving_percent=real("saving_percent", plain["saving_percent"], 0.0),
                wrong_labels=None if plain["wrong_labels"] is None else _share(plain["wrong_labels"]),
                wrong_labels_range=_range(plain["wrong_labels_range"]),
                epochs=integer("epochs", plain["epochs"], 1),
                watch_epochs=integer("watch_epochs", plain["watch_epochs"], 0),
                evidence=tuple(plain["evidence"]),
                shorter=None if shorter is None else integer("shorter", shorter, 1),
                wrong_labels_range_at_random=_range(plain.get("wrong_labels_range_at_random")),
            )
        except (LookupError, TypeError, RecursionError) as error:
            raise PrunedataError(f"Expected advice as Advice.to_dict() gives it. Got {shown(plain)}.") from error
        prunes = (found.policy, found.schedule, found.wrong_labels)
        agrees = found.verdict in ("watch", "fewer epochs") or (found.verdict == "prune" and None not in prunes)
        if not agrees or not all(isinstance(sentence, str) for sentence in found.evidence):
            raise PrunedataError(f"Expected advice with one of three verdicts, and evidence. Got {shown(plain)}.")
        return found


def _share(value: object) -> float:
    return min(real("a share of labels", value, 0.0), 1.0)


def _range(limits: Sequence[object] | None) -> tuple[float, float] | None:
    return None if limits is None else (_share(limits[0]), _share(limits[1]))


def advise(
    hits: Array,
    visits: Array,
    high: Array | None,
    epochs_done: int,
    schedule: Schedule,
    samples: int,
    *,
    tolerance: float = 0.0,
    prune: int = 0,
    history: Sequence[Mapping[str, Any]] = (),
) -> Advice:
    """Advise a run by what it has counted so far.

    Parameters
    ----------
    hits, visits : array of int, shape (samples,)
        Of all finished epochs.
    high : array of int, shape (samples,), or None
        Visits with a loss above ``ln(classes)``. Without it only hits are left to judge by, and
        pruning is never advised.
    epochs_done : int
        Finished epochs.
    schedule : Schedule
        Of the run: how many epochs it has, and with `prune` how much the run means to save.
    samples : int
        Samples in the data set.
    tolerance : float
        Of a hit. Hits can be judged by only where it is 0.
    prune : int
        Samples that the run's own pruned epochs leave out.
    history : sequence of mapping
        ``Pruner.history``, which shows whether wrong labels are learnt by heart.

    Raises
    ------
    PrunedataError
        If an array is not of shape (samples,), or counts more than the visits.
    """
    check_counts(visits, hits=hits, **({} if high is None else {"high": high}))
    if len(visits) != samples:
        raise PrunedataError(f"Expected counts of {samples} samples. Got {len(visits)}.")
    first = max(FEWEST_VISITS, -(-schedule.epochs // WATCHED_PART))
    if first >= schedule.epochs:
        short = f"A run of {schedule.epochs} epochs is too short to tell: {first} have to be watched."
        return _fewer_epochs(schedule, samples, prune, None, (short,))
    judged = visits >= FEWEST_VISITS
    number, seen = int(np.count_nonzero(judged)), int(np.count_nonzero(visits))
    if epochs_done < first or 2 * number < samples or number < LEAST_JUDGED * seen:
        told = f"{number:,} of {samples:,} samples were visited {FEWEST_VISITS} times or more"
        if epochs_done >= first:
            told += ": those that were pruned were not, so watch with observe_only=True"
        return _watch(schedule, epochs_done, first, told)
    if high is not None:
        estimate = by_high(high[judged], visits[judged], hits[judged] if tolerance == 0 else None)
    elif tolerance == 0:
        estimate = by_hits(hits[judged], visits[judged])
    else:
        blind = f"Hits with tolerance {tolerance:g} tell nothing of wrong labels: watch with Pruner(..., classes=K)."
        return _fewer_epochs(schedule, samples, prune, None, (blind,))
    when = f"Seen after {epochs_done} of {schedule.epochs} epochs."
    if not estimate.worth_pruning:
        return _fewer_epochs(schedule, samples, prune, estimate, (when, *estimate.evidence))
    return _prune(schedule, samples, first, estimate, when, above_guess(history))


def _watch(schedule: Schedule, done: int, first: int, seen: str) -> Advice:
    more = max(first - done, 1)
    epochs = "epoch" if more == 1 else "epochs"
    told = (
        f"{done} of {schedule.epochs} epochs are done, and {seen}.",
        f"Watch for {more} more {epochs}: before, wrong labels and hard samples look alike.",
    )
    if done >= schedule.epochs:
        more = first
        told = (
            f"All {done} epochs are done, and {seen}.",
            f"Watch the first {more} epochs of the next run on these data: they tell wrong labels from hard samples.",
        )
    return Advice("watch", None, 0, None, 0.0, None, None, schedule.epochs, more, told)


def _prune(
    schedule: Schedule, samples: int, first: int, estimate: Estimate, when: str, shares: Sequence[float]
) -> Advice:
    share, why = _share_to_prune(estimate, shares)
    shorter = epochs_before(shares, estimate.share)
    by_heart = shorter is not None or learns_fast(shares, estimate.share)
    risk = () if by_heart or estimate.share >= MANY else (NOT_BY_HEART,)
    pruned = max(1, count_pruned(samples, int(100 * min(PRUNE_MOST, share)) / 100))
    epochs = schedule.epochs
    advised = Schedule.steady(epochs, first)
    saving = 100 * pruned * (epochs - first) / (epochs * samples)
    return Advice(
        verdict="prune",
        policy=ADVISED_POLICY,
        prune=pruned,
        schedule=advised,
        saving_percent=saving,
        wrong_labels=estimate.share,
        wrong_labels_range=(estimate.low, estimate.most),
        epochs=epochs,
        watch_epochs=0,
        evidence=(when, *estimate.evidence, why, PRUNING_PAYS, *risk, *_by_heart(shares, shorter)),
        shorter=shorter,
        wrong_labels_range_at_random=(estimate.low, estimate.high),
    )


def _share_to_prune(estimate: Estimate, shares: Sequence[float]) -> tuple[float, str]:
    """As many as seem wrong; or as are hard, where wrong labels that are left in cost more than right ones left out."""
    if estimate.hard is not None and learns_fast(shares, estimate.share):
        why = "Losses above a blind guess fall fast: wrong labels that are left in are learnt by heart. "
    elif estimate.hard is not None and estimate.share >= MANY:
        why = ""
    else:
        return estimate.share, "Leave out as many as seem wrong."
    return max(estimate.share, estimate.hard), f"{why}Leave out as many as are hard."


def _by_heart(shares: Sequence[float], shorter: int | None) -> tuple[str, ...]:
    if shorter is None:
        return ()
    fell = f"from {shares[FIRST]:.0%} of the visits in epoch {FIRST} to {shares[shorter]:.0%} in epoch {shorter}"
    return (
        f"Losses above a blind guess fell {fell}: from there on the network learns wrong labels by heart. Or train "
        f"shorter, about {shorter} epochs with a learning-rate schedule of their own: {SHORTER_PAYS}",
    )


def _fewer_epochs(
    schedule: Schedule, samples: int, prune: int, estimate: Estimate | None, told: tuple[str, ...]
) -> Advice:
    """Save as much as the run means to by pruning, or else as the paper does."""
    epochs = schedule.epochs
    planned = prune * len(schedule.pruned_epochs) / (epochs * samples) or USUAL_SAVING
    fewer = max(1, round(epochs * (1 - planned)))
    drops = f"Train {fewer} epochs instead of {epochs}, with the learning rate's drops moved in proportion."
    return Advice(
        verdict="fewer epochs",
        policy=None,
        prune=0,
        schedule=None,
        saving_percent=100 * (1 - fewer / epochs),
        wrong_labels=None if estimate is None else estimate.share,
        wrong_labels_range=None if estimate is None else (estimate.low, estimate.most),
        epochs=fewer,
        watch_epochs=0,
        evidence=(*told, PRUNING_COSTS, drops),
        wrong_labels_range_at_random=None if estimate is None else (estimate.low, estimate.high),
    )
