"""Schedules that reach a saving asked for: the paper's shape, searched on a small grid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from prunedata.errors import ScheduleError
from prunedata.plan.cost import CostModel, Prediction
from prunedata.plan.schedule import Schedule, real

BLOCK, MOST = 5, 5  # epochs in a block, proposals
STARTS = tuple(Fraction(twelfths, 12) for twelfths in (4, 3, 5, 2, 6))  # of a window, the likeliest first
ATTENUATIONS = (1.0, 1.5, 2.0)
PRUNE_FRACTIONS = tuple(percent / 100 for percent in range(5, 55, 5))
OVERSHOOT_STEP = 0.5  # percent: proposals this near to each other count as equally near to the target


@dataclass(frozen=True)
class Proposal:
    """A schedule, the fraction to prune with it, and what they save."""

    schedule: Schedule
    prune: float
    prediction: Prediction


def _schedules(
    epochs: int, window: int | tuple[int, ...], reading: Literal["aligned", "printed"]
) -> Iterator[Schedule]:
    window = Schedule(epochs, window, 1, BLOCK, 1, reading=reading).window
    length = min(window) if isinstance(window, tuple) else window
    for attenuation in ATTENUATIONS:
        for fraction in STARTS:
            # An epoch of each block stays full, else what is pruned first might be unseen for a window.
            for count in range(1, BLOCK):
                start = max(1, int(min(length, epochs) * fraction))
                yield Schedule(epochs, window, start, BLOCK, count, attenuation, reading)


def propose(
    cost: CostModel,
    target_percent: float,
    epochs: int,
    window: int | tuple[int, ...],
    *,
    reading: Literal["aligned", "printed"] = "aligned",
) -> list[Proposal]:
    """Return up to five proposals that save at least `target_percent` of the time of `epochs` epochs.

    There is one proposal for each fraction of the samples to prune, from 0.05 to 0.5: the one that saves least above
    the target. Starts lie from a sixth to a half of the shortest window, blocks have 5 epochs. The proposals nearest
    to the target come first (in steps of half a percent), then those with the smallest fraction.

    Raises :class:`ScheduleError` if none reaches the target; the message has the largest saving that can be reached.
    """
    target = real("target_percent", target_percent, 0.0, above=True)
    best: dict[float, Proposal] = {}
    largest = 0.0
    for schedule in _schedules(epochs, window, reading):
        for prune in PRUNE_FRACTIONS:
            found = Proposal(schedule, prune, cost.predict(schedule, prune))
            saved = found.prediction.saved_percent
            largest = max(largest, saved)
            # Strictly less: of equals the first stays, and the grid begins with the paper's own shape.
            if saved >= target and (prune not in best or saved < best[prune].prediction.saved_percent):
                best[prune] = found
    if not best:
        raise ScheduleError(
            f"Expected a saving that can be reached. Got {target:g}%: the largest proposed for this "
            f"window and batch size is {largest:.2f}%: ask for less, or plan a schedule of your own."
        )

    def rank(proposal: Proposal) -> tuple[int, float]:
        return int((proposal.prediction.saved_percent - target) / OVERSHOOT_STEP), proposal.prune

    return sorted(best.values(), key=rank)[:MOST]
