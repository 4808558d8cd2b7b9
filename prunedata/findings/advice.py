"""What to do with a run, by its validation figures and the losses of its samples: prune it, and how, or leave it alone.

Advice is a pure function of what a run has recorded. Nothing in it was measured on other networks, and the unit of the
losses has no part in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, Literal

import numpy as np

from prunedata.checks import integer, real, shown
from prunedata.errors import PrunedataError
from prunedata.plan.doubts import count_doubted
from prunedata.plan.schedule import Schedule
from prunedata.plan.turn import Figures, find_turn
from prunedata.policies.built_in import from_description
from prunedata.policies.mean_excess import MeanExcess
from prunedata.policies.protocol import Policy, describe
from prunedata.types import Array

__all__ = ["ADVISED_POLICY", "Advice", "advise"]

ADVISED_POLICY = MeanExcess()
"""What is left out once the figure has turned: what the losses up to the turn point at."""
VERDICTS = ("watch", "prune", "don't prune")


@dataclass(frozen=True)
class Advice:
    """What to do with a run.

    Attributes
    ----------
    verdict : {"watch", "prune", "don't prune"}
        Watch on, as the validation figure has not turned so far; prune, as it has; or don't, as it never did.
    policy : Policy or None
        What to prune by; None unless the verdict is to prune, as are ``prune`` 0 and ``schedule`` None.
    prune : int
        Samples to leave out of a pruned epoch.
    schedule : Schedule or None
        When to prune: in every epoch after the turn.
    saving_percent : float
        Sample visits that it saves.
    evidence : tuple of str
        Sentences: what was seen, and what was measured where.
    turned : int or None
        The epoch whose figure showed the turn.
    lost : float
        How far the mean of the last three figures lies below the highest mean so far, in the units of the figure.
    shorter : int or None
        How many epochs to train instead of pruning, with a learning-rate schedule of their own: as many as had the
        highest figures. None if the figure has not turned.
    """

    verdict: Literal["watch", "prune", "don't prune"]
    policy: Policy | None
    prune: int
    schedule: Schedule | None
    saving_percent: float
    evidence: tuple[str, ...]
    turned: int | None = None
    lost: float = 0.0
    shorter: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict that JSON can hold."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        plain["policy"] = None if self.policy is None else describe(self.policy)
        plain["schedule"] = None if self.schedule is None else self.schedule.to_dict()
        plain["evidence"] = list(self.evidence)
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "Advice":
        """Return what :meth:`to_dict` was called on. Raises :class:`PrunedataError` if it is nothing of the kind."""
        if not isinstance(plain, dict) or plain.keys() != {one.name for one in fields(cls)}:
            raise PrunedataError(f"Expected advice as Advice.to_dict() gives it. Got {shown(plain)}.")
        try:
            policy, schedule, turned, shorter = (plain[name] for name in ("policy", "schedule", "turned", "shorter"))
            verdict, evidence = plain["verdict"], plain["evidence"]
            if not isinstance(verdict, str) or not isinstance(evidence, list | tuple):
                raise TypeError
            found = cls(
                verdict=verdict,  # type: ignore[arg-type]  # checked below
                policy=None if policy is None else from_description(policy),
                prune=integer("prune", plain["prune"], 0),
                schedule=None if schedule is None else Schedule.from_dict(schedule),
                saving_percent=real("saving_percent", plain["saving_percent"], 0.0),
                evidence=tuple(evidence),
                turned=None if turned is None else integer("turned", turned, 0),
                lost=real("lost", plain["lost"], 0.0),
                shorter=None if shorter is None else integer("shorter", shorter, 1),
            )
        except (LookupError, TypeError, RecursionError) as error:
            raise PrunedataError(f"Expected advice as Advice.to_dict() gives it. Got {shown(plain)}.") from error
        agrees = found.verdict in VERDICTS and (found.verdict != "prune" or None not in (found.policy, found.schedule))
        if not agrees or not all(isinstance(sentence, str) for sentence in found.evidence):
            raise PrunedataError(f"Expected advice with one of three verdicts, and evidence. Got {shown(plain)}.")
        return found


def advise(
    history: Sequence[Mapping[str, Any]], schedule: Schedule, mean_excess: Array, *, prune: int | None = None
) -> Advice:
    """Advise a run by what it has recorded so far.

    Parameters
    ----------
    history : sequence of mapping
        ``Pruner.history``, with the figures that :meth:`prunedata.Pruner.validated` was given.
    schedule : Schedule
        Of the run: how many epochs it has.
    mean_excess : array of float, shape (samples,)
        The run's array of that name, of the samples that it may train on.
    prune : int, optional
        Leave out at most so many.

    Raises
    ------
    PrunedataError
        If the array is not of shape (samples,), or a record is none.
    """
    if np.ndim(mean_excess) != 1:
        raise PrunedataError(f"Expected mean_excess of shape (samples,). Got {np.shape(mean_excess)}.")
    for record in history:
        _check_record(record)
    figures, done = find_turn(history), len(history)
    if figures.turned is not None:
        return _prune(figures, schedule, mean_excess, prune)
    finished = done >= schedule.epochs
    if not figures.number:
        return _leave_alone("watch", figures, _why_no_figure(history))
    told = f"{figures.number} of {done} epochs have a validation figure, and it has not turned"
    if finished:
        why = "nothing shows that the network learns wrong labels by heart, and pruning would only cost accuracy."
        return _leave_alone("don't prune", figures, f"{told}: {why}")
    return _leave_alone("watch", figures, f"{told} so far.")


def _check_record(record: Mapping[str, Any]) -> None:
    mean = record.get("mean_loss") if isinstance(record, Mapping) else ""
    if isinstance(mean, str) or not isinstance(mean, Real | None):
        raise PrunedataError(f"Expected records of epochs, as Pruner.history has them. Got {shown(record)}.")
    for name in ("number", "kept", "observed"):
        integer(f"{name} in the record of an epoch", record.get(name), 0)


def _why_no_figure(history: Sequence[Mapping[str, Any]]) -> str:
    if not history:
        return "No epoch has ended yet, so that nothing is known."
    if any("aside" in record for record in history):
        return "There is no validation figure: observe the losses of the samples that are held out, which make it."
    return "No validation figure was given: call pruner.validated(accuracy) in each epoch."


def _leave_alone(verdict: Literal["watch", "don't prune"], figures: Figures, told: str) -> Advice:
    return Advice(verdict, None, 0, None, 0.0, (told,), lost=max(0.0, figures.lost))


def _prune(figures: Figures, schedule: Schedule, mean_excess: Array, prune: int | None) -> Advice:
    turned, best, epochs = figures.turned or 0, figures.best or 0, schedule.epochs
    start = max(1, min(turned + 1, epochs - 1))
    samples = len(mean_excess)
    doubted = count_doubted(mean_excess, memorizes=True)
    number = doubted if prune is None else min(doubted, prune)
    return Advice(
        verdict="prune",
        policy=ADVISED_POLICY,
        prune=number,
        schedule=Schedule.steady(epochs, start),
        saving_percent=100 * number * (epochs - start) / (epochs * samples) if epochs > start else 0.0,
        evidence=(
            f"The validation figure has turned: its mean of three was highest in epoch {best}, and by epoch {turned} "
            "it had fallen by more than chance explains. From there on the network learns by heart what holds for "
            "single samples only, such as wrong labels.",
            f"It lies {figures.lost:.3g} below its highest mean of three now.",
            f"By their losses up to the turn {doubted:,} of {samples:,} labels are doubted: leave out as many samples, "
            "those of the highest losses.",
            f"Or train {best + 1} epochs instead, with a learning-rate schedule of their own.",
        ),
        turned=turned,
        lost=max(0.0, figures.lost),
        shorter=best + 1,
    )
