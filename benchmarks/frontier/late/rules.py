"""How many samples to leave out, by the moving averages of their losses: the rules that the study compares."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prunedata.plan.doubts import above_own, count_doubted, two_groups

__all__ = ["RULES", "Averages", "MovingAverages", "Rule", "above_median", "upper_group"]

Averages = NDArray[np.float64]
DECAY = 0.75
"""What an epoch keeps of a sample's average."""
ROOT = 2.0
"""Of the sum of doubts, as the ``auto`` of before counts."""


class MovingAverages:
    """Each sample's moving average of losses. Old ones fade with every epoch, whether it was seen or not.

    Attributes
    ----------
    means : list of float
        The mean loss of each epoch.
    """

    def __init__(self, samples: int) -> None:
        self._sums, self._weights = np.zeros(samples), np.zeros(samples)
        self._seen = np.full(samples, -1)
        self.means: list[float] = []
        self._visits = 0

    def add(self, ids: NDArray[np.integer], losses: NDArray[np.float32], epoch: int) -> None:
        """Take the losses of an epoch; each sample once."""
        kept = DECAY ** (epoch - self._seen[ids])
        self._sums[ids] = kept * self._sums[ids] + (1 - DECAY) * losses
        self._weights[ids] = kept * self._weights[ids] + (1 - DECAY)
        self._seen[ids] = epoch
        if epoch == len(self.means):
            self.means.append(0.0)
            self._visits = 0
        self._visits += len(ids)
        self.means[epoch] += (float(losses.mean()) - self.means[epoch]) * len(ids) / self._visits

    @property
    def now(self) -> Averages:
        """The averages, shape (samples,); 0 of a sample that was never observed."""
        return np.asarray(self._sums / np.maximum(self._weights, 1e-12))


def _doubted(averages: Averages, losses: Averages, untaught: float) -> int:
    return count_doubted(two_groups(averages, losses), untaught=untaught)


def _sum(averages: Averages, losses: Averages, untaught: float) -> int:
    return round(float((1 - np.exp(-averages / ROOT)).sum()))


def upper_group(averages: Averages, losses: Averages, untaught: float) -> int:
    """How many samples there are in the upper of the two groups of losses, however clear these are."""
    return two_groups(averages).upper


def above_median(averages: Averages, labels: NDArray[np.integer]) -> Averages:
    """How far averages lie above the median of those of their own label."""
    medians = {one: float(np.median(averages[labels == one])) for one in np.unique(labels)}
    above: Averages = averages - np.array([medians[one] for one in labels])
    return above


@dataclass(frozen=True)
class Rule:
    """When a run leaves out, and how many samples.

    Parameters
    ----------
    title : str
        What it does, in a few words.
    count : callable
        Called with what samples are compared by, their moving averages, and the loss with which the run began; how many
        samples to leave out.
    looks : bool
        Whether every third epoch delivers what is left out.
    turns : bool
        Whether it begins at the onset of its validation figure, if that comes sooner.
    onset : bool
        Whether it begins when the two groups of losses come nearer again, if that comes sooner.
    many : bool
        Whether it begins when many samples are worse than the network was at first, or a wide group of them is being
        learned, if that comes sooner.
    compared : callable, optional
        Called with the moving averages and the labels; by what samples are compared. By the averages if not given.
    """

    title: str
    count: Callable[[Averages, Averages, float], int] = _doubted
    looks: bool = True
    turns: bool = False
    onset: bool = False
    many: bool = False
    compared: Callable[[Averages, NDArray[np.integer]], Averages] | None = None


RULES = {
    "late": Rule("from two thirds of the run on, as many as `count_doubted` returns; looking again every third epoch"),
    "late-blind": Rule("as `late`, without looking again", looks=False),
    "late-onset": Rule("as `late`, or once the two groups of losses come nearer again", onset=True),
    "onset-blind": Rule(
        "as `late-onset`, or once many samples are worse than at first, or a wide group is being memorized; without "
        "looking again. This is what the library does without a figure and without labels",
        looks=False, onset=True, many=True,
    ),
    "onset-labels": Rule(
        "as `onset-blind`, by how far losses lie above the lowest tenth of those of their own label. This is what the "
        "library does with labels and without a figure",
        looks=False, onset=True, many=True, compared=above_own,
    ),
    "onset-median": Rule(
        "as `onset-labels`, but above the median of their own label, and without regard to how many are worse than at "
        "first",
        looks=False, onset=True, compared=above_median,
    ),
    "late-turn": Rule("as `late`, or from the memorization onset on, if a figure shows it before", turns=True),
    "late-upper": Rule("as `late`, but the whole upper group", upper_group),
    "late-sum": Rule("as `late`, but as many as the doubts sum up to, as in the `auto` of before", _sum),
}  # fmt: skip
"""By name."""
