"""The page docs/evidence/study.md: the paper's two tables, with the controls that it lacks.

Differences are paired: a run's accuracy less that
of regular training with the same seed, labels, network and epochs.
"""

from collections.abc import Sequence
from typing import Any

from benchmarks.common.markdown import markdown
from benchmarks.pages.accuracy import gain_of, table_of_accuracy, table_of_gains
from benchmarks.pages.time_saved import PAPER, table_of_savings, table_of_time
from benchmarks.study.arms import ARMS

__all__ = ["study"]

Facts = dict[str, Any]
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
