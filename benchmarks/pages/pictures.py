"""The study's pictures from recorded runs. What has no runs yet is left out.

    python -m benchmarks.pages.pictures --results FILE --arrays FOLDER --out docs [--sheet RUN --data FOLDER]

Figure 1, losses and accuracy over the epochs; Figure 2, losses of single samples in two seeds, which needs runs made
with ``--trace``; predicted against measured saving; accuracy against visits saved; with ``--sheet`` a run's most
suspect samples.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from numpy.typing import NDArray

from benchmarks.common.commands import add_results, program
from benchmarks.common.drawing import new_figure, save
from benchmarks.pages.figures import draw_accuracy, draw_curves, draw_samples, draw_saving
from benchmarks.study.choosers import rates
from benchmarks.study.data import study_data
from benchmarks.study.recipe import LabelNoise, Recipe
from benchmarks.study.results import RESULTS, kind_of_labels, parse, recipe_of
from prunedata.findings.suspects import most_suspect

__all__ = ["class_names", "draw", "draw_sheet", "main", "read_arrays"]

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
        Of its data, as :func:`benchmarks.study.recipe.study_data` takes it.
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


Facts = dict[str, Any]
BESIDE = ("dropping-count", "running-loss", "dropping-count-run")
"""What Figure 1 shows beside regular training, in this order of preference; else the first arm that prunes."""


def read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return what a run wrote of its samples."""
    with np.load(path) as arrays:
        return dict(arrays)


def draw(results: Sequence[Facts], arrays: Path | None, out: Path) -> list[Path]:
    """Draw all that `results` suffice for into the folder `out`; return the files written."""
    drawn: list[Path | None] = [draw_saving(out / "saving.png", results)]
    for name, runs in _by_setting(results).items():
        drawn.append(draw_accuracy(out / f"accuracy-{name}.png", runs))
        pair = _beside_regular(runs)
        if pair is not None:
            drawn.append(draw_curves(out / f"curves-{name}.png", *pair))
        if arrays is not None:
            drawn.append(_samples(out / f"samples-{name}.png", runs, arrays))
    return [path for path in drawn if path is not None]


def _by_setting(results: Iterable[Facts]) -> dict[str, list[Facts]]:
    found: dict[str, list[Facts]] = defaultdict(list)
    for facts in results:
        found[f"{facts['network']}-{facts['data']}-{facts['samples']}x{facts['epochs']}"].append(facts)
    return found


def _beside_regular(runs: Sequence[Facts]) -> tuple[Facts, Facts] | None:
    """Return a regular run and one that prunes, of one seed and kind of labels."""

    def preference(facts: Facts) -> tuple[int, str, int, float]:
        arm = facts["policy"]
        return BESIDE.index(arm) if arm in BESIDE else len(BESIDE), arm, facts["seed"], -facts["saving"]

    regular = {(facts["noise"], facts["seed"]): facts for facts in runs if facts["policy"] == "regular"}
    for facts in sorted(runs, key=preference):
        own = regular.get((facts["noise"], facts["seed"]))
        if own is not None and any(point["pruned"] for point in facts["curves"]):
            return own, facts
    return None


def _samples(path: Path, runs: Sequence[Facts], folder: Path) -> Path | None:
    """Draw the first two traced runs that differ by their seed alone, regular ones if there are."""
    traced: dict[tuple[bool, str, str, float, int], list[tuple[Facts, dict[str, Any]]]] = defaultdict(list)
    for facts in runs:
        file = folder / f"{recipe_of(facts).name}.npz"
        arrays = read_arrays(file) if file.exists() else {}
        if "trace_losses" in arrays:
            arm = facts["policy"]
            key = arm != "regular", arm, facts["noise"], facts["saving"], len(arrays["trace_ids"])
            traced[key].append((facts, arrays))
    pairs = [sorted(traced[key], key=lambda run: int(run[0]["seed"]))[:2] for key in sorted(traced)]
    for first, second in (pair for pair in pairs if len(pair) == 2):
        return draw_samples(path, (first[0], second[0]), (first[1], second[1]))
    return None


def _sheet(name: str, results: Sequence[Facts], given: argparse.Namespace) -> Path:
    parse(name)
    facts = next((facts for facts in results if recipe_of(facts).name == name), None)
    if facts is None or given.arrays is None:
        raise ValueError(f"Expected --arrays, and results of a run named {name}. Got no such run, or no --arrays.")
    arrays = read_arrays(given.arrays / f"{name}.npz")
    if "hits" not in arrays:
        raise ValueError(f"Expected a run that counted hits: one that prunes, or one with --trace. Got {name}.")
    return draw_sheet(given.out / f"suspects-{name}.png", recipe_of(facts), given.data, arrays, given.top)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with command-line `arguments`; return the exit status."""
    parser = program("benchmarks.pages.pictures", "The study's pictures.")
    add = parser.add_argument
    add_results(parser, RESULTS)
    add("--arrays", type=Path, metavar="FOLDER", help="what the runs wrote of their samples, for Figure 2 and sheets")
    add("--data", type=Path, metavar="FOLDER", help="the images of a sheet; default: digits")
    add("--out", type=Path, default=Path("docs/pictures"), metavar="FOLDER", help="default: %(default)s")
    add("--sheet", metavar="RUN", help="also the most suspect samples of the run of this name")
    add("--top", type=int, default=30, help="samples of the sheet; default: %(default)s")
    given = parser.parse_args(arguments)
    try:
        results = given.results.read()
        if not results:
            raise ValueError(f"Expected results of benchmarks.study.train in {given.results}. Got none.")
        sheets = [] if given.sheet is None else [_sheet(given.sheet, results, given)]
        files = [*sheets, *draw(results, given.arrays, given.out)]
    except (ValueError, OSError, json.JSONDecodeError) as error:
        parser.error(str(error))
    for file in files:
        print(f"{file}  {file.stat().st_size / 1000:,.0f} kB")
    if not files:
        print("Nothing drawn: no run has a regular one of its seed beside it.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
