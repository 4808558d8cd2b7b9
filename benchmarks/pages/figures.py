"""What is drawn: curves of whole runs and of single samples, time saved, and accuracy against visits."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from benchmarks.common.drawing import SHADE, new_figure, save, tidy
from benchmarks.pages.accuracy import saving_of_an_epoch, table_of_accuracy
from benchmarks.study.arms import ARMS, look_of
from benchmarks.study.choosers import rates
from benchmarks.study.results import kind_of_labels, recipe_of

__all__ = ["Arrays", "choose", "draw_accuracy", "draw_curves", "draw_samples", "draw_saving", "savings", "spans"]


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


ROOM = 0.8
"""Points of visits saved between arms that save about equally, so that their bars don't lie on each other."""


def savings(results: Iterable[Facts]) -> list[dict[str, Any]]:
    """Return what a pruned epoch of each run was predicted to save, and what it saved, in percent of a full one's time.

    Runs in which full and pruned epochs don't take turns are left out: see :func:`saving_of_an_epoch`.
    """
    return [
        {
            "policy": facts["policy"],
            "hardware": facts["hardware"],
            "predicted_percent": 100 * both[0],
            "measured_percent": 100 * both[1],
        }
        for facts in results
        if (both := saving_of_an_epoch(facts))
    ]


def _shown(results: Iterable[Facts]) -> list[Facts]:
    """Leave out what was only tried."""
    return [facts for facts in results if not (facts["policy"] in ARMS and ARMS[facts["policy"]].tried)]


def draw_saving(path: Path, results: Iterable[Facts]) -> Path | None:
    """A point a run, the line where measured is predicted, a panel for each hardware; None if there is none."""
    rows = savings(_shown(results))
    hardware = sorted({row["hardware"] for row in rows})
    if not rows:
        return None
    figure = new_figure(max(6.2, 4.6 * len(hardware)), 5.2)
    for axes, machine in zip(figure.subplots(1, len(hardware), squeeze=False)[0], hardware, strict=True):
        mine = [row for row in rows if row["hardware"] == machine]
        values = [row[name] for row in mine for name in ("predicted_percent", "measured_percent")]
        low, high = min(values) - 3, max(values) + 3
        axes.plot([low, high], [low, high], color="#404040", linewidth=1)
        axes.fill_between(
            [low, high], [0.97 * low, 0.97 * high], [1.03 * low, 1.03 * high], color="#dedede", linewidth=0
        )
        for row in mine:
            colour, marker = look_of(row["policy"])
            axes.plot(row["predicted_percent"], row["measured_percent"], marker, color=colour, ms=8, alpha=0.8)
        axes.set(xlim=(low, high), ylim=(low, high), xlabel="predicted: batches of an epoch saved, %", aspect="equal")
        axes.set_title(machine, fontsize=9)
        axes.set_ylabel("measured: seconds of it saved, %")
        tidy(axes)
    arms = _ordered({row["policy"] for row in rows})
    keys = [Line2D([], [], color="#404040", linewidth=1), *map(_key, arms)]
    names = ["as predicted (grey: within 3% of it)", *arms]
    figure.legend(keys, names, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return save(figure, path)


def draw_accuracy(path: Path, results: Iterable[Facts]) -> Path | None:
    """Accuracy over regular training's of the same seed by visits saved: runs of one network, data and length.

    A panel for each kind of labels. A marker is an arm's mean over seeds, its bar reaches from the lowest seed to the
    highest, and a hollow marker is one seed alone. A mean far below all others stands at the edge, with its number.
    None if no run has a regular one beside it.
    """
    rows = [row for row in table_of_accuracy(map(dict, _shown(results))) if row["policy"] != "regular"]
    if not rows:
        return None
    noises = sorted({row["labels"] for row in rows}, key=lambda noise: (noise != "clean", noise))
    figure = new_figure(max(6.4, 3.6 * len(noises)), 4.8)
    panels = figure.subplots(1, len(noises), sharey=True, squeeze=False)[0]
    lowest, highest = _limits(rows)
    panels[0].set_ylim(lowest, highest)
    for axes, noise in zip(panels, noises, strict=True):
        colour, marker = look_of("regular")
        axes.axhline(0, color=colour, linewidth=1.2)
        axes.plot(0, 0, marker, color=colour, ms=8)
        for place, row in _beside([row for row in rows if row["labels"] == noise]):
            _gain(axes, place, row, lowest + (highest - lowest) / 30)
        axes.set_title(kind_of_labels(noise), fontsize=10)
        axes.set(xlim=(-2, max(row["visits_saved_percent"] for row in rows) + 4))
        axes.set_xlabel("sample visits saved, %")
        tidy(axes)
    panels[0].set_ylabel("final accuracy over regular\ntraining of the same seed, points")
    arms = _ordered({row["policy"] for row in rows})
    keys = [_key(arm) for arm in ("regular", *arms)]
    figure.legend(keys, ["regular", *arms], loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    row, seeds = rows[0], sorted({row["seeds"] for row in rows})
    how = f"{seeds[0]} seed{'s' if seeds[0] > 1 else ''}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    title = f"{row['network']}, {row['samples']:,} images of {row['data']}, {row['epochs']} epochs, {how}"
    figure.suptitle(title + (" (hollow: one)" if 1 in seeds else ""), fontsize=11)
    return save(figure, path)


def _limits(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Where the axis of gains ends: below, where most of them do, so that a single failure doesn't press them flat."""
    low, high = np.quantile([row["gain"] for row in rows], (0.1, 0.9))
    gains = [0.0, *(gain for row in rows for gain in row["gains"])]
    lowest, highest = min(0.0, max(min(gains), low - (high - low) / 2)), max(gains)
    margin = max(1.0, highest - lowest) / 15
    return lowest - margin, highest + margin


def _gain(axes: Axes, place: float, row: Mapping[str, Any], edge: float) -> None:
    (colour, marker), gains = look_of(row["policy"]), row["gains"]
    mean = sum(gains) / len(gains)
    if len(gains) > 1:
        axes.plot([place, place], [min(gains), max(gains)], color=colour, linewidth=1.8, solid_capstyle="butt")
    face = colour if len(gains) > 1 else "white"
    axes.plot(place, max(mean, edge), marker, color=colour, mfc=face, mec=colour, mew=1.6, ms=8)
    if mean < edge:
        beside: Any = {"xytext": (7, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(f"{mean:+.1f}", (place, edge), fontsize=9, color=colour, **beside)


def _beside(rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, Mapping[str, Any]]]:
    """Give each row its place, the visits that it saved; those nearer than ROOM step apart and keep their order."""
    rows = sorted(rows, key=lambda row: (row["visits_saved_percent"], _arm_order(row["policy"])))
    places = [float(row["visits_saved_percent"]) for row in rows]
    for _ in range(100):  # one that steps aside may come near the next
        for left in range(len(places) - 1):
            short = ROOM - (places[left + 1] - places[left])
            if short > 0:
                places[left] -= short / 2
                places[left + 1] += short / 2
    return list(zip(places, rows, strict=True))


def _key(arm: str) -> Line2D:
    colour, marker = look_of(arm)
    return Line2D([], [], color=colour, marker=marker, linestyle="", markersize=8)


def _arm_order(arm: str) -> tuple[int, str]:
    known = [*ARMS]
    return (known.index(arm) if arm in known else len(known)), arm


def _ordered(arms: Iterable[str]) -> list[str]:
    return sorted(arms, key=_arm_order)
