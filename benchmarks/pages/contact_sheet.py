"""The contact sheet: images of a run's most suspect samples, with their labels and rates."""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from numpy.typing import NDArray

from benchmarks.common.drawing import new_figure, save
from benchmarks.study.data import study_data
from benchmarks.study.judging import rates
from benchmarks.study.recipe import LabelNoise, Recipe
from benchmarks.study.results import kind_of_labels
from prunedata.findings.suspects import most_suspect

__all__ = ["class_names", "draw_sheet"]

COLUMNS = 10
WRONG, RIGHT = "#d55e00", "#0072b2"
CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def class_names(data: str, classes: int) -> list[str]:
    """Return the names of a data set's classes; their numbers where no names are known."""
    return CIFAR10 if data == "cifar10" and classes == len(CIFAR10) else [str(label) for label in range(classes)]


def draw_sheet(path: Path, recipe: Recipe, folder: Path | None, arrays: Mapping[str, NDArray[Any]], top: int) -> Path:
    """Draw the `top` most suspect samples of a run, the worst first, ranked as ``prunedata suspects`` ranks.

    Parameters
    ----------
    recipe : Recipe
        Of the run.
    folder : Path or None
        Of its data, as :func:`benchmarks.study.data.study_data` takes it.
    arrays : mapping
        What the run wrote of its samples: hits, visits, labels, wrong and, if it counted them, high.

    Raises
    ------
    ValueError
        If the data are not those of the run.
    """
    data = study_data(recipe, folder)
    labels, truth = (
        one.train.labels.numpy() for one in (data, study_data(replace(recipe, noise=LabelNoise()), folder))
    )
    if not np.array_equal(labels, arrays["labels"]):
        raise ValueError("Expected the data that the run was trained on. Got others: their labels differ.")
    rate = rates(arrays["hits"], arrays["visits"], arrays.get("high"))
    ids = most_suspect(rate, arrays["visits"], top)
    names = class_names(data.name, data.classes)
    rows = max(1, ceil(len(ids) / COLUMNS))
    figure = new_figure(COLUMNS * 0.95, rows * 1.42 + 0.7)
    panels = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for axes in panels:
        axes.set_axis_off()
    for axes, sample in zip(panels, ids, strict=False):
        planted = bool(data.wrong[sample])
        axes.imshow(data.train.images[int(sample)].permute(1, 2, 0).numpy(), cmap="gray", interpolation="nearest")
        was = f"is {names[truth[sample]]}" if planted else "as it was"
        _label(axes, names[labels[sample]], f"{was}\nrate {rate[sample]:.2f}", WRONG if planted else RIGHT)
    figure.suptitle(_title(recipe, data.name, len(ids), int(data.wrong[ids].sum())), fontsize=11)
    keys = [Patch(color=WRONG), Patch(color=RIGHT)], ["label planted wrong", "label as in the data set"]
    figure.legend(*keys, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return save(figure, path, photographs=True)


def _label(axes: Axes, above: str, below: str, colour: str) -> None:
    axes.set_axis_on()
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=colour, linewidth=2.5)
    axes.set_title(above, fontsize=9, pad=3)
    axes.set_xlabel(below, fontsize=8, labelpad=3, color=colour)


def _title(recipe: Recipe, data: str, shown: int, wrong: int) -> str:
    planted = "" if recipe.noise.kind == "none" else f"; {wrong} of these {shown} are"
    return f"Most suspect of {data}, {recipe.network}, {recipe.arm}: {kind_of_labels(str(recipe.noise))}{planted}"
