"""The paper's two tables from recorded runs, with the controls that it lacks. Pictures are benchmarks.pages.pictures's.

    python -m benchmarks.pages.study_page [--json]

Reads what benchmarks.study.train and benchmarks.study.matrix wrote. Differences are paired: a run's accuracy less that
of regular training with the same seed, labels, network and epochs.
"""

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.common.markdown import markdown
from benchmarks.pages.time_saved import saving_of_an_epoch, table_of_savings
from benchmarks.study.recipe import ARMS
from benchmarks.study.train import RESULTS

__all__ = [
    "PAPER",
    "gain_of",
    "main",
    "read_results",
    "study",
    "table_of_accuracy",
    "table_of_gains",
    "table_of_time",
]

PAPER = {
    "lenet": (11.80, 75.15, 74.72),
    "vgg13": (7.40, 93.92, 93.56),
    "vgg16": (7.56, 93.79, 93.44),
    "vgg19": (7.65, 93.35, 93.30),
    "resnet18": (12.76, 91.25, 91.16),
    "resnet34": (13.43, 92.86, 92.85),
    "resnet50": (13.92, 93.75, 93.46),
    "wrn10": (13.73, 92.13, 91.78),
    "wrn16": (13.81, 94.22, 94.20),
    "wrn22": (14.29, 95.08, 94.71),
}
"""Speedup in percent (Table 1), accuracy of regular and of pruned training in percent (Table 2)."""

PREFACE = """# The study, run by run

`python -m benchmarks.pages` writes this page from `benchmarks/results/`. Accuracy is of the test set, in percent: the
mean of the last three epochs (`accuracy_final`) and, as the paper has it, of the best three (`accuracy_best3`). A gain
is in points against regular training with the same seed, labels and epochs; `spread` is the standard deviation of the
gains. Seconds are the processor's, of runs on a shared machine that drifts from one run to the next. So
`measured_over_predicted`, the share of the time saved over that of the batches saved, is of neighbouring epochs of one
run, of which one is pruned: medians, overhead included. `overhead_percent` is of the training time, inside of the
library or of InfoBatch."""
COLUMNS = ("network", "data", "samples", "epochs", "labels", "saving", "policy")
"""What runs that differ by the seed alone have in common."""
Facts = dict[str, Any]
Group = tuple[str, str, int, int, str, float, str]


def read_results(folder: Path) -> list[Facts]:
    """Return the facts of every run recorded in a folder, ordered by file name."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]


def _setting(facts: Facts) -> tuple[str, str, int, int, str]:
    return facts["network"], facts["data"], facts["samples"], facts["epochs"], facts["noise"]


def _grouped(results: Iterable[Facts]) -> dict[Group, list[tuple[Facts, Facts]]]:
    """Pair every run with the regular one of its seed, and group the pairs by all but the seed."""
    results = list(results)
    regular = {(*_setting(facts), facts["seed"]): facts for facts in results if facts["policy"] == "regular"}
    groups: dict[Group, list[tuple[Facts, Facts]]] = defaultdict(list)
    for facts in results:
        own = regular.get((*_setting(facts), facts["seed"]))
        if own is not None:
            groups[(*_setting(facts), facts["saving"], facts["policy"])].append((facts, own))
    return {group: sorted(groups[group], key=lambda pair: pair[0]["seed"]) for group in sorted(groups)}


def _spread(values: Sequence[float]) -> float:
    return round(statistics.stdev(values), 3) if len(values) > 1 else 0.0


def table_of_accuracy(results: Iterable[Facts]) -> list[Facts]:
    """Table 2 and its controls: a row for each network, kind of labels, saving and policy.

    ``gain`` is the mean over seeds of final accuracy less regular training's, in points; ``spread`` is the standard
    deviation of these differences, and ``gains`` are they themselves, by seed.
    """
    rows = []
    for group, pairs in _grouped(results).items():
        gains = [round(facts["accuracy_final"] - own["accuracy_final"], 3) for facts, own in pairs]
        rows.append(
            {
                **dict(zip(COLUMNS, group, strict=True)), "seeds": len(pairs),
                "visits_saved_percent": round(statistics.mean(facts["visits_saved_percent"] for facts, _ in pairs), 2),
                "accuracy_best3": round(statistics.mean(facts["accuracy_best3"] for facts, _ in pairs), 2),
                "accuracy_final": round(statistics.mean(facts["accuracy_final"] for facts, _ in pairs), 2),
                "gain": round(statistics.mean(gains), 2), "spread": _spread(gains), "gains": gains,
            }
        )  # fmt: skip
    return rows


def table_of_gains(accuracy: Iterable[Facts]) -> list[Facts]:
    """Return gains side by side: a row for each network, kind of labels and saving, from those of accuracy.

    ``gains`` maps a policy to its row of :func:`table_of_accuracy`.
    """
    found, regular = [], None
    for setting, rows in groupby(accuracy, key=lambda row: {name: row[name] for name in COLUMNS[:-1]}):
        policies = {row["policy"]: row for row in rows}
        if "regular" in policies:  # it saves nothing, and so comes first
            regular = policies["regular"]["accuracy_final"]
        else:
            found.append({**setting, "regular": regular, "gains": policies})
    return found


def table_of_time(results: Iterable[Facts]) -> list[Facts]:
    """Table 1: seconds of regular and of pruned training, overhead, and the percentage saved with it.

    ``measured_over_predicted`` is from :func:`saving_of_an_epoch`, the median of the runs that have it.
    """
    rows = []
    for group, pairs in _grouped(results).items():
        row: Facts = dict(zip(COLUMNS, group, strict=True))
        if row["policy"] == "regular":
            continue
        saved = [100 * (1 - facts["seconds"] / own["seconds"]) for facts, own in pairs]
        known = [both for facts, _ in pairs if (both := saving_of_an_epoch(facts))]
        ratios = [measured / predicted for predicted, measured in known]
        rows.append(
            {
                **row, "seeds": len(pairs),
                "regular_seconds": round(statistics.mean(own["seconds"] for _, own in pairs), 1),
                "pruned_seconds": round(statistics.mean(facts["seconds"] for facts, _ in pairs), 1),
                "overhead_seconds": round(statistics.mean(facts["overhead_seconds"] for facts, _ in pairs), 2),
                "saved_percent": round(statistics.median(saved), 2),
                "measured_over_predicted": round(statistics.median(ratios), 3) if ratios else None,
                "visits_saved_percent": round(statistics.mean(facts["visits_saved_percent"] for facts, _ in pairs), 2),
                "paper_percent": PAPER.get(row["network"], (None,))[0],
            }
        )  # fmt: skip
    return rows


def _table(rows: Sequence[Facts], columns: Sequence[str]) -> str:
    def cell(value: Any) -> str:
        if isinstance(value, list):
            return " ".join(f"{item:+.2f}" for item in value)
        if isinstance(value, float):
            return f"{value:.2f}"
        return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)

    return markdown(columns, ([cell(row[column]) for column in columns] for row in rows))


def gain_of(row: Facts | None, digits: int = 2, *, best: bool = False) -> str:
    """Mean, bold if best, and range of a row of :func:`table_of_accuracy`, and how few its seeds; "" of no row."""
    if row is None:
        return ""
    mean, lowest, highest = (f"{gain:+.{digits}f}" for gain in (row["gain"], min(row["gains"]), max(row["gains"])))
    few = {1: "1 seed", 2: f"2 seeds, {lowest} to {highest}"}
    return f"{f'**{mean}**' if best else mean} ({few.get(row['seeds'], f'{lowest} to {highest}')})"


def _side_by_side(rows: Sequence[Facts]) -> str:
    arms = [arm for arm in ARMS if any(arm in row["gains"] for row in rows)]
    cells = [{**row, **{arm: gain_of(row["gains"].get(arm)) for arm in arms}} for row in rows]
    return _table(cells, ("network", "data", "samples", "epochs", "labels", "saving", "regular", *arms))


def study(results: Sequence[Facts]) -> str:
    """Return the page that has all of it."""
    accuracy = table_of_accuracy(results)
    gains, savings, seconds = table_of_gains(accuracy), table_of_savings(results), table_of_time(results)
    shared = ("network", "data", "samples", "epochs", "labels", "policy", "seeds", "visits_saved_percent")
    finals = ("accuracy_best3", "accuracy_final", "gain", "spread", "gains")
    times = ("regular_seconds", "pruned_seconds", "overhead_seconds", "saved_percent", "measured_over_predicted")
    parts = [
        PREFACE,
        "## Gains side by side\n\nMean, and lowest to highest of the seeds.\n\n" + _side_by_side(gains),
        "## Accuracy\n\n" + _table(accuracy, (*shared, *finals)),
        "## Time saved, and overhead\n\nMedians of all runs of a policy.\n\n" + _table(savings, tuple(savings[0])),
        "## Seconds of training\n\n" + _table(seconds, (*shared, *times)),
    ]
    papers = [
        [network, *(f"{figure:.2f}" for figure in (regular, pruned, speedup))]
        for network, (speedup, regular, pruned) in PAPER.items()
        if any(row["network"] == network for row in accuracy)
    ]
    if papers:
        columns = ("network", "accuracy, regular", "accuracy, pruned", "time saved, percent")
        parts.append("## The paper's figures\n\n" + markdown(columns, papers))
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with command-line `arguments`; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages.study_page", description="The study's tables.")
    add = parser.add_argument
    add("--results", type=Path, default=RESULTS, metavar="FOLDER", help="default: benchmarks/results")
    add("--network", action="append", help="only these; may be given several times")
    add("--json", action="store_true", help="print one JSON object instead of the tables")
    given = parser.parse_args(arguments)
    results = [facts for facts in read_results(given.results) if not given.network or facts["network"] in given.network]
    if not results:
        parser.error(f"Expected results of benchmarks.study.train in {given.results}. Got none.")
    if given.json:
        accuracy, savings = table_of_accuracy(results), table_of_savings(results)
        tables = {"accuracy": accuracy, "gains": table_of_gains(accuracy), "savings": savings}
        print(json.dumps({**tables, "time": table_of_time(results)}, indent=2))
    else:
        print(study(results), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
