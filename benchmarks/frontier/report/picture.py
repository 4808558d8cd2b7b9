"""The frontier as a picture: accuracy over visits, a panel for each kind of labels."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from benchmarks.common.drawing import new_figure, save, tidy
from benchmarks.common.records import Facts
from benchmarks.frontier.arms import KINDS, Lengths
from benchmarks.frontier.curves import Curve, best_of, curves, tuned
from benchmarks.frontier.report.table import title

__all__ = ["draw"]

LOOKS = {
    "known-wrong": ("#999999", "*", "the wrong labels known"),
    "bounded": ("#0072b2", "v", "pruned by BoundedLoss"),
    "running-loss": ("#009e73", "p", "pruned by RunningLoss"),
    "random": ("#d55e00", "D", "pruned at random"),
    "regular": ("#404040", "o", "regular training"),
}
"""Colour and marker of each arm that is drawn, and what the picture calls it: Okabe and Ito's, with any colour vision.

One that is also trained otherwise is drawn beside its own, as :data:`BESIDE` says, if pruned runs were, too.
"""
BESIDE: dict[str, tuple[Literal["--", ":"], str]] = {
    "tuned": ("--", "the same, at its best dropout, smoothing or weight decay"),
    "elr": (":", "the same with early-learning regularisation"),
}
"""How an arm is trained otherwise: the line, and what the picture calls it."""
TICKS = (3, 5, 10, 20, 45)
LEAST_ROOM = 4.0
"""Points of accuracy that a panel shows at least, around the highest points of its arms."""


def draw(path: Path, results: Sequence[Facts], lengths: Lengths = Lengths()) -> Path:  # noqa: B008, it is frozen
    """Write a PNG and return its path: a line joins the means of an arm's lengths, a band has all its seeds."""
    found = curves(results, lengths)
    kinds = [kind for kind in KINDS if kind in found]
    if not kinds:
        raise ValueError("Expected a seed of which an arm has all lengths. Got none.")
    columns = min(3, len(kinds))
    rows = -(-len(kinds) // columns)
    figure = new_figure(max(6.0, 3.9 * columns), 3.3 * rows + 1)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, kind in zip(panels, kinds, strict=False):
        _panel(axes, found[kind])
        axes.set_title(f"{kind}: {title(kind, results)}", fontsize=8)
    for axes in panels[len(kinds) :]:
        axes.set_visible(False)
    for axes in panels[::columns]:
        axes.set_ylabel("test accuracy at the end, %")
    for axes in panels[len(kinds) - columns : len(kinds)]:  # the lowest of each column
        axes.set_xlabel("visits, in epochs of all samples")
    shown = [arm for arm in LOOKS if any(arm in arms for arms in found.values())]
    keys = [Line2D([], [], color=LOOKS[arm][0], marker=LOOKS[arm][1]) for arm in shown]
    names = [LOOKS[arm][2] for arm in shown]
    for way, (line, name) in BESIDE.items():
        if any(way in _beside(arms, "bounded") for arms in found.values()):
            keys.append(Line2D([], [], color="#404040", linestyle=line))
            names.append(name)
    figure.legend(keys, names, loc="outside lower center", ncols=min(3, columns + 1), frameon=False, fontsize=9)
    return save(figure, path)


def _panel(axes: Axes, arms: Mapping[str, Curve]) -> None:
    for arm in [arm for arm in LOOKS if arm in arms]:
        tone, shape, _ = LOOKS[arm]
        curve = arms[arm]
        axes.fill_between(curve.visits, curve.accuracy.min(0), curve.accuracy.max(0), color=tone, alpha=0.2, lw=0)
        axes.plot(curve.visits, curve.mean, color=tone, marker=shape, markersize=4, linewidth=1.4)
        for way, other in _beside(arms, arm).items():
            axes.plot(other.visits, other.mean, color=tone, linestyle=BESIDE[way][0], linewidth=1.2)
    axes.set(xscale="log", ylim=_limits(arms))
    axes.set_xticks(TICKS, map(str, TICKS))
    axes.xaxis.set_minor_locator(NullLocator())
    tidy(axes)


def _beside(arms: Mapping[str, Curve], arm: str) -> dict[str, Curve]:
    """What is drawn beside an arm, by how it is trained: only ways in which runs were pruned, too."""
    found = {}
    for way in BESIDE:
        ours, pruned = (_trained(way, arms, name) for name in (arm, "bounded"))
        if ours and pruned:
            found[way] = arms[ours]
    return found


def _trained(way: str, arms: Mapping[str, Curve], arm: str) -> str:
    """The arm that differs from ``arm`` by how it is trained, at its best; "" without runs of it."""
    return best_of(arms, tuned(arms, arm) if way == "tuned" else {f"{arm}-{way}"} & arms.keys())


def _limits(arms: Mapping[str, Curve]) -> tuple[float, float]:
    """Leave out what lies far below the highest points of what is drawn: it would press the rest flat."""
    drawn = [curve for arm in LOOKS if arm in arms for curve in (arms[arm], *_beside(arms, arm).values())]
    tops = [float(curve.mean.max()) for curve in drawn]
    room = max(LEAST_ROOM, max(tops) - min(tops))
    return min(tops) - 1.5 * room, max(tops) + 0.1 * room + 0.3
