"""The tables of docs/ that recorded runs fill.

A comment in the page names a table and what it is of.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.common.commands import markdown
from benchmarks.pages.accuracy import (
    PAPER,
    gain_of,
    table_of_accuracy,
    table_of_families,
    table_of_gains,
    table_of_savings,
    table_of_time,
)
from benchmarks.pages.overlap import RESULTS, recorded_pairs
from benchmarks.pages.ten_networks import RECORDED
from benchmarks.pages.ten_networks import table as table_of_networks
from benchmarks.study.arms import ARMS, columns

__all__ = ["TABLES", "study"]

Facts = dict[str, Any]
COLUMNS = columns()
"""Ways to choose side by side, and the arms that stand for each; of two at one setting the first."""
LABELS = {
    "random40": "40 % wrong at random",
    "random20": "20 % wrong at random",
    "clean": "clean",
    "worse": "people's, the worst of three answers, 41 % wrong",
    "aggre": "people's, the majority of three answers, 9 % wrong",
    "confusable20": "20 % a weak model's errors",
}


def _chosen(row: Facts, columns: Iterable[str]) -> list[Facts | None]:
    """Return the arm that stands for each column in a row of :func:`table_of_gains`."""
    gains = row["gains"]
    return [next((gains[arm.name] for arm in COLUMNS[name] if arm.name in gains), None) for name in columns]


def _side_by_side(row: Facts, columns: Sequence[str], digits: int = 2) -> list[str]:
    chosen = _chosen(row, columns)
    policies = [each for each in chosen if each and not ARMS[each["policy"]].unbeatable]
    best = max((each["gain"] for each in policies), default=None)
    return [gain_of(each, digits, best=each in policies and each["gain"] == best) for each in chosen]


def _of(rows: Iterable[Facts], network: str, data: str, samples: str | int) -> list[Facts]:
    wanted = (network, data, int(samples))
    return [row for row in rows if (row["network"], row["data"], row["samples"]) == wanted]


def _gains(results: Sequence[Facts], network: str, data: str, samples: str) -> list[Facts]:
    rows = _of(table_of_gains(table_of_accuracy(results)), network, data, samples)
    return sorted(rows, key=lambda row: (list(LABELS).index(row["labels"]), row["saving"]))


def gains(results: Sequence[Facts], network: str, data: str, samples: str) -> str:
    """Ways to choose side by side, a row for each kind of labels and saving."""
    rows = [row for row in _gains(results, network, data, samples) if any(_chosen(row, COLUMNS))]
    columns = [name for name in COLUMNS if any(any(_chosen(row, [name])) for row in rows)]
    return markdown(
        ["labels", "visits saved", "regular", *columns],
        ([LABELS[row["labels"]], _saved(row), f"{row['regular']:.2f}", *_side_by_side(row, columns)] for row in rows),
    )


def _saved(row: Facts) -> str:
    """Which share of the visits was saved by the arms that save what they are asked for."""
    chosen = [each for arm, each in row["gains"].items() if arm not in ARMS or ARMS[arm].saves_as_asked]
    return _range(each["visits_saved_percent"] for each in chosen)


def _range(percents: Iterable[float]) -> str:
    whole = sorted(map(round, percents))
    return f"{whole[0]} %" if whole[0] == whole[-1] else f"{whole[0]} to {whole[-1]} %"


def controls(results: Sequence[Facts], network: str, data: str, samples: str) -> str:
    """The paper's rule beside the controls, means: where three seeds of all are there."""
    columns, lines = ("paper's rule", "at random", "fewer epochs", "InfoBatch"), []
    for row in _gains(results, network, data, samples):
        chosen = [row["gains"].get(COLUMNS[name][0].name, {"seeds": 0}) for name in columns]
        if all(each["seeds"] > 2 for each in chosen):
            saved = f"{100 * row['saving']:.0f} %"
            lines.append([LABELS[row["labels"]], saved, *(f"{each['gain']:+.2f}" for each in chosen)])
    return markdown(["labels", "visits saved", *columns], lines)


def seeds(results: Sequence[Facts], network: str, data: str, samples: str, labels: str, saving: str) -> str:
    """All ways to choose at one setting, seed by seed."""
    wanted = (0.0, float(saving))
    rows = [
        row
        for row in _of(table_of_accuracy(results), network, data, samples)
        if row["labels"] == labels and row["saving"] in wanted
    ]
    rows.sort(key=lambda row: list(ARMS).index(row["policy"]))
    lines = []
    for row in rows:
        line = [row["policy"], str(row["seeds"]), f"{row['visits_saved_percent']:.1f} %"]
        line += [f"{row['accuracy_final']:.2f}", f"{row['accuracy_best3']:.2f}"]
        if row["policy"] == "regular":
            lines.append([*line, "", "", ""])
        else:
            by_seed = " / ".join(f"{gain:+.2f}" for gain in row["gains"])
            lines.append([*line, by_seed, f"{row['gain']:+.2f}", f"{row['spread']:.2f}"])
    return markdown(
        ["run", "seeds", "visits saved", "final accuracy", "best three", "gain, by seed", "mean", "spread"], lines
    )


def savings(results: Sequence[Facts], network: str, data: str, samples: str) -> str:
    """Overhead of each policy, and the time it saved over what was predicted."""
    lines = []
    for row in _of(table_of_savings(results), network, data, samples):
        line = [row["policy"], str(row["runs"]), f"{row['overhead_percent']:.2f} %", "", ""]
        if row["runs_in_turns"]:
            line[3] = f"{row['measured_over_predicted']:.2f}"
            line[4] = f"{row['lowest_tenth']:.2f} to {row['highest_tenth']:.2f}"
        lines.append(line)
    return markdown(["policy", "runs", "overhead", "time saved over predicted", "eight of ten runs"], lines)


def ten_networks(_: Sequence[Facts]) -> str:
    """The paper's Table 1, from runs of its own."""
    return table_of_networks(RECORDED.read())


def agreement(_: Sequence[Facts]) -> str:
    """How far networks of each two kinds suspect the same samples, from pairs of their own."""
    return table_of_families(recorded_pairs(RESULTS))


TABLES: dict[str, Callable[..., str]] = {
    table.__name__: table for table in (gains, controls, seeds, savings, ten_networks, agreement)
}


PREFACE = """# The study, run by run

`python -m benchmarks.pages` writes this page from `benchmarks/study/`. Accuracy is on the test set, in percent: the
mean of the last three epochs (`accuracy_final`) and, as in the paper, of the best three (`accuracy_best3`). A gain is
in points against regular training with the same seed, labels and epochs; `spread` is the standard deviation of the
gains. Seconds are processor time, of runs on a shared machine whose speed drifts from one run to the next. So
`measured_over_predicted`, the saved share of the time divided by the saved share of the batches, compares neighboring
epochs of one run, one of which is pruned: medians, overhead included. `overhead_percent` is the share of the training
time that is spent in the library or in InfoBatch."""


def _table(rows: Sequence[Facts], columns: Sequence[str]) -> str:
    def cell(value: Any) -> str:
        if isinstance(value, list):
            return " ".join(f"{item:+.2f}" for item in value)
        if isinstance(value, float):
            return f"{value:.2f}"
        return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)

    return markdown(columns, ([cell(row[column]) for column in columns] for row in rows))


def _study_side_by_side(rows: Sequence[Facts]) -> str:
    arms = [arm for arm in ARMS if any(arm in row["gains"] for row in rows)]
    cells = [{**row, **{arm: gain_of(row["gains"].get(arm)) for arm in arms}} for row in rows]
    return _table(cells, ("network", "data", "samples", "epochs", "labels", "saving", "regular", *arms))


def study(results: Sequence[Facts]) -> str:
    """Return the page docs/evidence/study.md: the paper's two tables, with the controls that it lacks.

    Differences are paired: a run's accuracy less that of regular training with the same seed, labels, network and
    epochs.
    """
    accuracy = table_of_accuracy(results)
    gains, savings, seconds = table_of_gains(accuracy), table_of_savings(results), table_of_time(results)
    shared = ("network", "data", "samples", "epochs", "labels", "policy", "seeds", "visits_saved_percent")
    finals = ("accuracy_best3", "accuracy_final", "gain", "spread", "gains")
    times = ("regular_seconds", "pruned_seconds", "overhead_seconds", "saved_percent", "measured_over_predicted")
    parts = [
        PREFACE,
        "## Gains side by side\n\nMean, and lowest to highest of the seeds.\n\n" + _study_side_by_side(gains),
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
