"""How far the curves of arms lie apart: at their highest points, at equal visits, and at a length."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.markdown import gain
from benchmarks.frontier.arms import ARMS
from benchmarks.frontier.curves import EARLY_STOP, Curve

__all__ = [
    "Apart", "best_of", "best_rival", "equal_epochs", "equal_visits", "own_known", "own_regular", "text_of",
    "tops_apart", "tuned",
]  # fmt: skip

CHOOSES_NOT = ("", "random")
"""Policies, or none, that any rule has to beat."""


@dataclass(frozen=True)
class Apart:
    """Accuracy of one arm less another's, in points, by seed."""

    points: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("Expected a seed that both arms have. Got none.")

    @property
    def mean(self) -> float:
        """Over seeds."""
        return float(np.mean(self.points))


def own_regular(arm: str) -> str:
    """The regular arm that differs from ``arm`` by pruning alone."""
    return f"regular{_recipe(arm)}"


def own_known(arm: str) -> str:
    """The arm that knows the wrong labels and differs from ``arm`` by that alone."""
    return f"known-wrong{_recipe(arm)}"


def _recipe(arm: str) -> str:
    """How its network is trained, as the end of its name says it: what follows "regular" in a regular arm's."""
    ends = (name.removeprefix("regular") for name in ARMS if name.startswith("regular-"))
    return next((end for end in ends if arm.endswith(end)), "")


def best_rival(arms: Mapping[str, Curve]) -> str:
    """The arm with the highest point of those that prune nothing or at random, stopped ones among them."""
    names = [arm for arm in arms if arm == EARLY_STOP or ARMS[arm].policy in CHOOSES_NOT]
    return best_of(arms, names)


def best_of(arms: Mapping[str, Curve], names: Iterable[str]) -> str:
    """The one of ``names`` with the highest point; "" of none."""
    return max(names, key=lambda arm: arms[arm].mean.max(), default="")


def tuned(arms: Mapping[str, Curve], arm: str) -> list[str]:
    """The arms that differ from ``arm`` by dropout, smoothing or weight decay alone."""
    same = ARMS[arm].untuned
    return [name for name in arms if name in ARMS and name != arm and ARMS[name].untuned == same]


def tops_apart(arms: Mapping[str, Curve], arm: str, other: str) -> Apart | None:
    """One arm's highest point less the other's, paired by seed; None without the other."""
    both = _both(arms, arm, other)
    if both is None:
        return None
    return _apart(both[0].accuracy[:, both[0].top], both[1].accuracy[:, both[1].top])


def equal_visits(arms: Mapping[str, Curve], arm: str, other: str) -> dict[int, Apart]:
    """One arm at each of its lengths less the best of the other within as many visits, paired by seed."""
    both = _both(arms, arm, other)
    if both is None:
        return {}
    mine, theirs = both
    within = [theirs.within(float(visits)) for visits in mine.visits]
    return {
        length: _apart(mine.accuracy[:, at], best)
        for at, (length, best) in enumerate(zip(mine.epochs, within, strict=True))
        if best is not None
    }


def equal_epochs(arms: Mapping[str, Curve], arm: str, other: str, epochs: int) -> Apart | None:
    """One arm less the other, both of so many epochs, paired by seed; None if either has no such runs."""
    both = _both(arms, arm, other)
    if both is None or any(epochs not in curve.epochs for curve in both):
        return None
    mine, theirs = (curve.accuracy[:, curve.epochs.index(epochs)] for curve in both)
    return _apart(mine, theirs)


def _both(arms: Mapping[str, Curve], arm: str, other: str) -> tuple[Curve, Curve] | None:
    """The two curves, of the seeds that both have."""
    if arm not in arms or other not in arms:
        return None
    seeds = [seed for seed in arms[arm].seeds if seed in arms[other].seeds]
    return (arms[arm].of(seeds), arms[other].of(seeds)) if seeds else None


def _apart(mine: NDArray[np.float64], theirs: NDArray[np.float64]) -> Apart:
    return Apart(tuple(round(float(gap), 2) for gap in mine - theirs))


def text_of(apart: Apart | None, seeds: int = 0) -> str:
    """The mean, in brackets the lowest to the highest seed and how many, if fewer than ``seeds``; "" for nothing."""
    if apart is None:
        return ""
    number = len(apart.points)
    return gain(apart.points, alone=" (1 seed)", beside=f", {number} seeds" if number < seeds else "")
