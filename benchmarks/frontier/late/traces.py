"""Recorded losses of a deep network: how well moving averages rank its wrong labels, and how many the rule doubts."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.common.commands import markdown
from benchmarks.frontier.late.rules import MovingAverages
from prunedata.plan.doubts import are_many_worse, count_doubted, lie_clearer, loss_at_first, two_groups

__all__ = ["BEGIN", "traces"]

BEGIN = "<!-- python -m benchmarks.frontier.late traces -->"
AFTER = (12, 20, 26, 30)
"""Epochs after which they are looked at."""
TRACES = ("worse", "clean")


def traces(folder: Path) -> str:
    """Return a table of the files ``trace-resnet18-KIND.npz`` of a folder as Markdown.

    Arrays ``losses``, float16 of shape (epochs, samples), and ``wrong``, bool of shape (samples,).
    """
    rows = []
    for kind in TRACES:
        with np.load(folder / f"trace-resnet18-{kind}.npz") as file:
            losses, wrong = file["losses"].astype(np.float32), file["wrong"]
        averages, ids = MovingAverages(wrong.size), np.arange(wrong.size)
        for epoch, of_epoch in enumerate(losses, 1):
            averages.add(ids, of_epoch, epoch - 1)
            if epoch in AFTER:
                now, untaught = averages.now, loss_at_first(averages.means)
                number = count_doubted(two_groups(now), untaught=untaught, many=are_many_worse(now, untaught))
                rows.append([f"`{kind}`", str(epoch), *_row(now, losses[:epoch].mean(0), wrong, number)])
    heads = (
        "labels",
        "after epoch",
        "wrong",
        "AUC, recent",
        "mean of all epochs",
        "suspects",
        "doubted",
        "of these wrong",
    )
    return markdown(heads, rows) + "\n"


def _row(averages: NDArray[np.float64], means: NDArray[np.float32], wrong: NDArray[np.bool_], number: int) -> list[str]:
    cells = [f"{100 * wrong.mean():.1f} %", "", "", "", f"{100 * number / wrong.size:.1f} %", ""]
    if wrong.any():
        recent, of_all = (f"{roc_auc_score(wrong, by):.3f}" for by in (averages, means))
        cells[1:4] = recent, of_all, recent if lie_clearer(averages, means) else of_all
        cells[5] = f"{100 * wrong[np.argsort(-averages)[:number]].mean():.0f} %" if number else ""
    return cells
