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
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.arguments import add_results, program
from benchmarks.pages.contact_sheet import draw_sheet
from benchmarks.pages.curves import draw_curves, draw_samples
from benchmarks.pages.saving_pictures import draw_accuracy, draw_saving
from benchmarks.study.results import RESULTS, parse, recipe_of

__all__ = ["draw", "main", "read_arrays"]

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
