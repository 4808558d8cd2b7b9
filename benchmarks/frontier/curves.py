"""What is read off the frontier's runs: curves of accuracy over visits, and how far apart they lie."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.commands import gain
from benchmarks.frontier.arms import ARMS, USUAL, Lengths

__all__ = [
    "EARLY_STOP",
    "PATIENCE",
    "Apart",
    "Curve",
    "best_of",
    "best_rival",
    "curves",
    "equal_epochs",
    "equal_visits",
    "own_known",
    "own_regular",
    "text_of",
    "tops_apart",
    "tuned",
]

EARLY_STOP = "early-stop"
"""Regular training that the labels held out stop: read off the regular runs, so an arm without runs of its own."""
PATIENCE = 3
"""It stops after as many epochs without a new best, and goes back to the best."""

Facts = Mapping[str, Any]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Curve:
    """An arm on one kind of labels, a point for each length.

    Attributes
    ----------
    seeds, epochs : tuple of int
        Of the runs; each seed has all lengths, in rising order.
    visits : ndarray, shape (lengths,)
        In epochs of all samples.
    accuracy, validation : ndarray, shape (seeds, lengths)
        Percent right at the end: of the test set, and of the labels held out, some of which are wrong.
    """

    seeds: tuple[int, ...]
    epochs: tuple[int, ...]
    visits: Floats
    accuracy: Floats
    validation: Floats

    def __post_init__(self) -> None:
        shape = len(self.seeds), len(self.epochs)
        shapes = self.accuracy.shape, self.validation.shape, self.visits.shape
        if shapes != (shape, shape, shape[1:]) or not all(shape):
            raise ValueError(f"Expected accuracies of shape {shape}, and as many visits as lengths. Got {shapes}.")

    @property
    def mean(self) -> Floats:
        """Mean accuracy over seeds, shape (lengths,)."""
        return np.asarray(self.accuracy.mean(0))

    @property
    def spread(self) -> Floats:
        """Standard deviation of the accuracy over seeds, shape (lengths,); 0 of one seed."""
        return np.asarray(self.accuracy.std(0, ddof=1)) if len(self.seeds) > 1 else np.zeros(len(self.epochs))

    @property
    def top(self) -> int:
        """Where its mean is highest."""
        return int(self.mean.argmax())

    @property
    def highest(self) -> str:
        """Its highest mean, and at how many epochs, as tables say it."""
        return f"{self.mean.max():.1f} at {self.epochs[self.top]}"

    @property
    def chosen(self) -> Floats:
        """Accuracy of each seed at the length where most of its labels held out are right, shape (seeds,)."""
        best = self.validation.argmax(1)
        return np.asarray(self.accuracy[np.arange(len(self.seeds)), best])

    def of(self, seeds: Sequence[int]) -> "Curve":
        """The curve of some of its seeds."""
        rows = [self.seeds.index(seed) for seed in seeds]
        return replace(self, seeds=tuple(seeds), accuracy=self.accuracy[rows], validation=self.validation[rows])

    def at(self, visits: float) -> Floats | None:
        """Accuracy of each seed at so many visits, between two lengths by their logarithm; None beyond its ends."""
        if not self.visits[0] <= visits <= self.visits[-1]:
            return None
        ends = np.log(self.visits)
        return np.array([np.interp(np.log(visits), ends, row) for row in self.accuracy])

    def within(self, visits: float) -> Floats | None:
        """The same, or of a shorter length that is better in the mean: the best that so many visits can buy."""
        here = self.at(visits)
        shorter = self.visits <= visits
        if here is None:
            return None
        best = int(np.where(shorter, self.mean, -np.inf).argmax())
        return here if here.mean() >= self.mean[best] else self.accuracy[:, best]


def curves(results: Iterable[Facts], lengths: Lengths = Lengths()) -> dict[str, dict[str, Curve]]:  # noqa: B008, frozen
    """Return the curve of each arm by kind of labels.

    A seed counts once it has all lengths of the arm up to the usual one; a longer one counts if all seeds have it.
    """
    runs: dict[tuple[str, str], dict[tuple[int, int], Facts]] = defaultdict(dict)
    for facts in results:
        runs[facts["kind"], facts["arm"]][facts["seed"], facts["epochs"]] = facts
    found: dict[str, dict[str, Curve]] = defaultdict(dict)
    for (kind, arm), of in sorted(runs.items()):
        needed = [length for length in lengths.of(arm) if length <= USUAL]
        seeds = [seed for seed in sorted({seed for seed, _ in of}) if all((seed, length) in of for length in needed)]
        if not seeds:
            continue
        epochs = [length for length in lengths.of(arm) if all((seed, length) in of for seed in seeds)]
        rows = [[of[seed, length] for length in epochs] for seed in seeds]
        found[kind][arm] = _curve(seeds, epochs, rows)
        if arm == "regular":
            found[kind][EARLY_STOP] = _stopped(seeds, epochs, rows)
    return dict(found)


def _curve(seeds: list[int], epochs: list[int], rows: list[list[Facts]]) -> Curve:
    visits = np.array([run["visits"] / run["samples"] for run in rows[0]])
    accuracy = np.array([[run["accuracy"] for run in row] for row in rows], float)
    validation = np.array([[run["curves"]["validation"][-1] for run in row] for row in rows], float)
    return Curve(tuple(seeds), tuple(epochs), visits, accuracy, validation)


def _stopped(seeds: list[int], epochs: list[int], rows: list[list[Facts]]) -> Curve:
    """What regular runs reach if the labels held out stop them; visits are the seeds' mean, patience among them."""
    stops = [[_stop(run["curves"]["validation"]) for run in row] for row in rows]
    pairs = [list(zip(row, stop, strict=True)) for row, stop in zip(rows, stops, strict=True)]
    accuracy = np.array([[run["curves"]["accuracy"][best] for run, (best, _) in row] for row in pairs], float)
    validation = np.array([[run["curves"]["validation"][best] for run, (best, _) in row] for row in pairs], float)
    visits = np.array([[sum(run["curves"]["visits"][:end]) / run["samples"] for run, (_, end) in row] for row in pairs])
    return Curve(tuple(seeds), tuple(epochs), visits.mean(0), accuracy, validation)


def _stop(validation: Sequence[float]) -> tuple[int, int]:
    """Return the epoch to go back to, from 0, and how many were trained."""
    best = 0
    for at, right in enumerate(validation):
        if right > validation[best]:
            best = at
        elif at - best >= PATIENCE:
            return best, at + 1
    return best, len(validation)


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
