"""Figures 1 and 2 of the paper: curves of whole runs, and of single samples."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from numpy.typing import NDArray

from benchmarks.common.drawing import SHADE, new_figure, save, tidy
from benchmarks.study.arms import look_of
from benchmarks.study.choosers import rates
from benchmarks.study.results import kind_of_labels, recipe_of

__all__ = ["Arrays", "choose", "draw_curves", "draw_samples", "spans"]

Arrays = Mapping[str, NDArray[Any]]
Facts = Mapping[str, Any]
INKS = ("#222255", "#bb5566")
"""Of two samples: no arm's colours."""
OF_MEAN = 5
"""Epochs over which a sample's loss is averaged for the thick line, as crop and flip make single ones jump."""


def spans(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return (first, last) of each stretch of ascending `numbers` without a gap."""
    stretches = [[n for _, n in group] for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return [(stretch[0], stretch[-1]) for stretch in stretches]


def draw_curves(path: Path, regular: Facts, pruned: Facts) -> Path:
    """Figure 1: losses and accuracy of two runs; a line where the rate drops; the second's pruned epochs shaded."""
    figure = new_figure(8, 7)
    panels = figure.subplots(3, 1, sharex=True)
    shown = ("loss", "training loss, nats\n(of the samples visited)"), ("test_loss", "test loss, nats")
    for axes, (field, label) in zip(panels, (*shown, ("accuracy", "test accuracy, %")), strict=True):
        for first, last in spans([point["epoch"] for point in pruned["curves"] if point["pruned"]]):
            axes.axvspan(first - 0.5, last + 0.5, color=SHADE, linewidth=0, zorder=0)
        for facts in (regular, pruned):
            _curve(axes, facts, field)
        for epoch in recipe_of(regular).milestones:
            axes.axvline(epoch - 0.5, color="black", linewidth=0.9, linestyle=":")
        axes.set_ylabel(label)
        tidy(axes)
    panels[2].set(xlabel="epoch (dotted: the learning rate drops to a fifth)", xlim=(-0.5, regular["epochs"] - 0.5))
    lines = panels[0].get_lines()[:2]
    names = "regular", f"{pruned['policy']}, {pruned['visits_saved_percent']:.0f}% of the visits saved"
    figure.legend(
        [*lines, Patch(color=SHADE)], [*names, "pruned epoch"], loc="outside lower center", ncols=3, frameon=False
    )
    figure.suptitle(_title(pruned) + f", seed {pruned['seed']}", fontsize=11)
    return save(figure, path)


def _curve(axes: Axes, facts: Facts, field: str) -> None:
    points = [(point["epoch"], point[field]) for point in facts["curves"] if field in point]
    scale = 100 if field == "accuracy" else 1
    # Tests are far apart at first: the markers show where there is one, the line only leads the eye.
    sparse = len(points) < len(facts["curves"])
    colour, marker = look_of(facts["policy"])
    axes.plot(
        [epoch for epoch, _ in points],
        [scale * value for _, value in points],
        color=colour,
        marker=marker if sparse else None,
        markersize=3.5,
        linewidth=1.4,
    )


def _title(facts: Facts) -> str:
    data = f"{facts['network']}, {facts['samples']:,} images of {facts['data']}"
    return f"{data}, {kind_of_labels(facts['noise'])}"


def choose(first: Arrays, second: Arrays, each: int = 2) -> dict[str, list[int]]:
    """Choose traced samples, ``each`` of a kind: columns of the traces that are hit most, differ most, are hit least.

    By the mean over both runs of the share of visits that were hits, and by its difference.
    """
    ids = first["trace_ids"]
    one, other = (rates(run["hits"][ids], run["visits"][ids]) for run in (first, second))
    mean = np.argsort(one + other, kind="stable")
    differ = [int(at) for at in np.argsort(-np.abs(one - other), kind="stable")]
    most, least = [int(at) for at in mean[::-1][:each]], [int(at) for at in mean[:each]]
    between = [at for at in differ if at not in most + least][:each]
    return {"hit most in both": most, "the runs differ": between, "hit least in both": least}


def draw_samples(path: Path, facts: tuple[Facts, Facts], arrays: tuple[Arrays, Arrays]) -> Path:
    """Figure 2: losses of single samples in two runs that differ by their seed.

    Raises
    ------
    ValueError
        If the runs don't trace the same samples with the same labels.
    """
    if not all(np.array_equal(arrays[0][name], arrays[1][name]) for name in ("trace_ids", "labels")):
        raise ValueError("Expected two runs that trace the same samples with the same labels. Got others.")
    figure = new_figure(8, 7.5)
    rows = figure.subplots(3, 2, sharex=True, sharey="row")
    for panels, (what, columns) in zip(rows, choose(*arrays).items(), strict=True):
        for axes, run, own in zip(panels, facts, arrays, strict=True):
            for ink, column in zip(INKS, columns, strict=False):
                _loss(axes, own, column, ink)
            axes.axhline(log(own["scores"].shape[1]), color="#808080", linewidth=0.9, linestyle=":")
            for epoch in recipe_of(run).milestones:
                axes.axvline(epoch - 0.5, color="#b0b0b0", linewidth=0.7)
            tidy(axes)
        panels[0].set_ylabel(f"{what}\nloss, nats")
        panels[1].legend(fontsize=8, loc="best")
    for axes, top, run in zip(rows[2], rows[0], facts, strict=True):
        top.set_title(f"seed {run['seed']}", fontsize=10)
        axes.set_xlabel("epoch (upright: the learning rate drops;\ndotted: loss of a blind guess)")
    figure.suptitle(f"{_title(facts[0])}: {facts[0]['policy']}", fontsize=11)
    return save(figure, path)


def _loss(axes: Axes, run: Arrays, column: int, ink: str) -> None:
    losses = run["trace_losses"][:, column].astype(np.float64)
    sample = run["trace_ids"][column]
    name = f"sample {sample}, {'wrong' if run['wrong'][sample] else 'right'} label"
    axes.plot(losses, color=ink, linewidth=0.6, alpha=0.35)
    axes.plot(_smooth(losses), color=ink, linewidth=1.6, linestyle="--" if run["wrong"][sample] else "-", label=name)


def _smooth(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of the visits among the last few epochs; NaN where there was none."""
    seen, window = ~np.isnan(losses), np.ones(OF_MEAN)
    sums, counts = (np.convolve(each, window)[: len(losses)] for each in (np.nan_to_num(losses), seen.astype(float)))
    means: NDArray[np.float64] = np.divide(sums, counts, out=np.full(len(losses), np.nan), where=counts > 0)
    return means
