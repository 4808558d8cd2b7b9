"""The turn: the epoch from which a validation figure falls, as wrong labels are being learnt by heart.

A figure that was said after each epoch rises while a network learns what holds for other samples too. If it then falls,
the network learns what holds for single samples only, such as their wrong labels. No share of wrong labels and no curve
of another network comes in (docs/evidence/turn.md).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from prunedata.checks import shown
from prunedata.errors import PrunedataError
from prunedata.types import Losses, Recorded

__all__ = ["LARGEST", "TRUST", "Figures", "check_figure", "figure_of", "find_turn", "trust_in"]

MEAN_OF = 3
"""Figures that are averaged before they are compared: one alone says more of chance than of the network."""
DIFFERENCES = 6
"""Of successive figures, by which their scatter is measured. A network at a high learning rate jumps by several points
from epoch to epoch, and has not turned."""
SCATTERS = 2.0
"""How many times the scatter of a mean its fall must be. By 1, runs with tenfold weight decay start where nothing has
turned."""
LEAST_FALL = 0.05
"""Of the rise before. What is lost by less is not worth the samples that would be left out."""
ROOT = 4.0
"""Which root of a label's probability is how far it is trusted. The probability itself goes on rising while wrong
labels are learnt by heart, as the network grows surer of everything. Its logarithm falls on clean labels, too, by the
few on which the network is sure and errs. Of the roots from 2 to 8 the fourth falls when accuracy does, and
seldom before."""
TRUST = 1 << 20
"""What full trust in one label is in the sums: they are whole numbers, the same in whatever order they are added."""
LARGEST = 1e100
"""No figure is larger. Squares of figures, and sums of these, stay finite."""
OTHER_SCALE = 20.0
"""How many times as large as all before a figure is that was said as a percentage, after fractions."""


def trust_in(losses: Losses | Recorded) -> int:
    """How far labels are trusted, the sum over samples of the fourth root of each label's probability, times TRUST.

    Of cross-entropies, ndarray of float, shape (n,). With few samples its mean says more than how many are right.
    """
    roots = np.exp(np.maximum(losses, 0, dtype=np.float64) / -ROOT)
    return int(np.rint(TRUST * roots).astype(np.int64).sum())


class Figures:
    """The figures of a run so far, and whether they have turned. Each takes constant time, however many there are.

    Attributes
    ----------
    turned : int or None
        The epoch whose figure showed the turn.
    best : int or None
        The last epoch of the three whose mean is the highest so far, or was when it turned.
    lost : float
        How far the newest mean of three lies below the highest, in the units of the figure.
    number : int
        How many figures there are.
    newest : float
        The last of them; 0 if there is none.
    only_falls : bool
        Whether the newest have fallen as far as a turn needs and none had risen before, though nobody said that more of
        them is better: a loss that was given as a score looks so. That is no turn.
    """

    def __init__(self) -> None:
        self.turned: int | None = None
        self.best: int | None = None
        self.lost = 0.0
        self.number = 0
        self.newest = 0.0
        self.only_falls = False
        self._first = 0.0
        self._highest = -math.inf
        self._last: list[float] = []

    def take(self, record: Mapping[str, Any]) -> None:
        """Take over the figure of an epoch by its record in ``Pruner.history``; it may have none."""
        figure = figure_of(record)
        if figure is not None:
            # Whoever said which direction is better is believed; what the run makes of held-out samples is known.
            self.add(record["number"], figure, known="lower_is_better" in record or "held_out" in record)

    def add(self, epoch: int, figure: float, *, known: bool) -> None:
        """Take over the figure of an epoch, of which more is better; ``known`` says whether that is sure."""
        self._first = figure if not self.number else self._first
        self.number, self.newest = self.number + 1, figure
        self._last = [*self._last[-DIFFERENCES:], figure]
        if len(self._last) < MEAN_OF:
            return
        mean = math.fsum(self._last[-MEAN_OF:]) / MEAN_OF
        if mean > self._highest:
            self._highest = mean
            self.best = epoch if self.turned is None else self.best
        self.lost = self._highest - mean
        rise, scatter = self._highest - self._first, SCATTERS * self._scatter()
        if self.turned is None:
            fell = self.lost > max(scatter, LEAST_FALL * rise)
            rose = known or rise > scatter
            self.only_falls = fell and not rose
            self.turned = epoch if fell and rose else None

    def _scatter(self) -> float:
        """The standard deviation of the difference of two means of three, if figures change by chance only."""
        steps = [later - before for before, later in zip(self._last, self._last[1:], strict=False)]
        middle = math.fsum(steps) / len(steps)
        variance = math.fsum((step - middle) ** 2 for step in steps) / len(steps)
        return math.sqrt(variance / MEAN_OF)


def figure_of(record: Mapping[str, Any]) -> float | None:
    """The figure of an epoch by its record in ``Pruner.history``, so that more is better; None if it has none."""
    figure = record.get("validation")
    if figure is None:
        return None
    value = _finite(figure)
    return -value if record.get("lower_is_better") else value


def find_turn(history: Sequence[Mapping[str, Any]]) -> Figures:
    """The figures of a run by its ``Pruner.history``."""
    figures = Figures()
    for record in history:
        figures.take(record)
    return figures


def check_figure(figure: object, lower_is_better: object, history: Sequence[Mapping[str, Any]]) -> float:
    """Return a figure as a float.

    Raises
    ------
    PrunedataError
        If it is not finite, or not of the direction or scale of those before, as a share after percentages.
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
    to_percent = min(figures) >= 0 and max(figures) <= 1 < value and value > OTHER_SCALE * max(figures)
    to_share = min(figures) > 1 >= value >= 0 and value * OTHER_SCALE < max(figures)
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
            f"Expected the validation figure to be a finite number of at most {LARGEST:g}. Got {shown(figure)}."
        )
    return value
