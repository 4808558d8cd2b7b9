"""The memorization onset: the epoch from which a validation figure falls, as the network memorizes wrong labels.

The figure of each epoch rises while a network learns what holds for other samples too. If it then falls, the network
memorizes single samples, such as those with wrong labels. The rule assumes no share of wrong labels, and no curve of
another network (docs/evidence/turn.md).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from prunedata.checks import shown
from prunedata.errors import PrunedataError
from prunedata.types import Losses, Recorded

MEAN_OF = 3  # figures are compared as means of so many: a single one depends more on chance than on the network
DIFFERENCES = 6
"""So many differences of successive figures measure their scatter. At a high learning rate figures jump by several
points from epoch to epoch, which is no onset."""
SCATTERS = 2.0
"""A fall is at least so many times the scatter of a mean. With 1, runs with tenfold weight decay have false onsets."""
LEAST_FALL = 0.05
"""A fall is at least this share of the rise before. A smaller one is not worth the samples that would be left out."""
ROOT = 4.0
"""The trust in a label is this root of its probability. The probability itself keeps rising while wrong labels are
memorized, as the network grows more confident of everything. Its logarithm falls on clean labels, too, because of the
few on which the network is confident and wrong. Of the roots from 2 to 8 the fourth falls when accuracy does, and
seldom before."""
TRUST = 1 << 20
"""Full trust in one label, in the sums: these are whole numbers, so that the order of adding does not matter."""
LARGEST = 1e100  # no figure may be larger, so that squares of figures, and sums of these, stay finite
OTHER_SCALE = 20.0  # a figure so many times as large as all before is a percentage after fractions


def trust_in(losses: Losses | Recorded) -> int:
    """Return the sum of the fourth roots of labels' probabilities, by cross-entropies, shape (n,), times TRUST."""
    roots = np.exp(np.maximum(losses, 0, dtype=np.float64) / -ROOT)
    return int(np.rint(TRUST * roots).astype(np.int64).sum())


class Figures:
    """The validation figures of a run, and whether they show the memorization onset. Each takes constant time."""

    def __init__(self) -> None:
        self.onset: int | None = None  # the epoch whose figure showed the memorization onset
        self.best: int | None = None  # the last epoch of the three with the highest mean, up to the onset
        self.lost = 0.0  # how far the newest mean of three lies below the highest, in the units of the figure
        self.number, self.newest = 0, 0.0  # how many figures there are, and the last of them; 0 if there is none
        self.only_falls = False
        """Whether the figures have fallen as far as an onset needs without having risen before, though it is unknown
        whether more is better: a loss that is passed as a score looks like this. It is no onset."""
        self._first = 0.0
        self._highest = -math.inf
        self._last: list[float] = []

    def take(self, record: Mapping[str, Any]) -> None:
        """Add the figure of an epoch by its record in ``Pruner.history``, if it has one."""
        figure = figure_of(record)
        if figure is not None:
            # The direction is known if the user named it, or the run made the figure from held-out samples.
            self.add(record["number"], figure, known="lower_is_better" in record or "held_out" in record)

    def add(self, epoch: int, figure: float, *, known: bool) -> None:
        """Add the figure of an epoch, of which more is better; ``known``: whether that is certain."""
        self._first = figure if not self.number else self._first
        self.number, self.newest = self.number + 1, figure
        self._last = [*self._last[-DIFFERENCES:], figure]
        if len(self._last) < MEAN_OF:
            return
        mean = math.fsum(self._last[-MEAN_OF:]) / MEAN_OF
        if mean > self._highest:
            self._highest = mean
            self.best = epoch if self.onset is None else self.best
        self.lost = self._highest - mean
        rise, scatter = self._highest - self._first, SCATTERS * self._scatter()
        if self.onset is None:
            fell = self.lost > max(scatter, LEAST_FALL * rise)
            rose = known or rise > scatter
            self.only_falls = fell and not rose
            self.onset = epoch if fell and rose else None

    def _scatter(self) -> float:
        """Return the standard deviation of the difference of two means of three, if figures change by chance only."""
        steps = [later - before for before, later in zip(self._last, self._last[1:], strict=False)]
        middle = math.fsum(steps) / len(steps)
        variance = math.fsum((step - middle) ** 2 for step in steps) / len(steps)
        return math.sqrt(variance / MEAN_OF)


def figure_of(record: Mapping[str, Any]) -> float | None:
    """Return the figure of an epoch by its record in ``Pruner.history``, so that more is better; None without one."""
    figure = record.get("validation")
    if figure is None:
        return None
    value = _finite(figure)
    return -value if record.get("lower_is_better") else value


def find_onset(history: Sequence[Mapping[str, Any]]) -> Figures:
    """Return the figures of a run by its ``Pruner.history``."""
    figures = Figures()
    for record in history:
        figures.take(record)
    return figures


def check_figure(figure: object, lower_is_better: object, history: Sequence[Mapping[str, Any]]) -> float:
    """Return a figure as a float.

    Raises :class:`PrunedataError` if it is not finite, or not of the direction or scale of those before, as a share
    after percentages.
    """
    if not isinstance(lower_is_better, bool | None):
        raise PrunedataError(f"Expected lower_is_better to be True, False or None. Got {shown(lower_is_better)}.")
    value = _finite(figure)
    before = [record for record in history if record.get("validation") is not None]
    if not before:
        return value
    if bool(before[-1].get("lower_is_better")) != bool(lower_is_better):
        told = "lower" if lower_is_better else "higher"
        raise PrunedataError(
            f"Expected a validation figure of the same kind in every epoch. Got one of which {told} is better after "
            f"others in epoch {before[-1]['number']}: pass one metric throughout the run."
        )
    if lower_is_better:  # a loss may fall, or rise, to any value
        return value
    figures = [float(record["validation"]) for record in before]
    # 0 is on either scale: a score may begin with it, or fall to it as a network diverges.
    to_percent = min(figures) >= 0 and 0 < max(figures) <= 1 < value and value > OTHER_SCALE * max(figures)
    to_share = min(figures) > 1 >= value > 0 and value * OTHER_SCALE < max(figures)
    if to_percent or to_share:
        raise PrunedataError(
            f"Expected a validation figure on one scale. Got {value:g} after figures from {min(figures):g} to "
            f"{max(figures):g}: pass fractions or percentages, not both."
        )
    return value


def _finite(figure: Any) -> float:
    try:
        value = math.nan if isinstance(figure, bool | str) else float(figure)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not abs(value) <= LARGEST:
        raise PrunedataError(
            f"Expected the validation figure to be a finite number of at most {LARGEST:g}. Got {shown(figure)}: "
            "in an epoch without one don't call validated(), as not every epoch needs a figure."
        )
    return value
