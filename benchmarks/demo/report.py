"""What the demo found: facts for JSON, a table to read, and the pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from statistics import fmean, median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from benchmarks.common.commands import aligned
from benchmarks.common.drawing import BLUE, DARK_GREY, ORANGE, SHADE, VERMILION, new_figure, save, tidy
from benchmarks.demo.training import Setting, TrainingRun, paired_percent
from prunedata import CostModel, Schedule
from prunedata.plan.cost import count_pruned

__all__ = ["draw", "draw_accuracy", "facts", "table"]


HEADINGS = (
    "run",
    "epochs",
    "pruned epochs",
    "sample visits",
    "predicted saving",
    "measured saving",
    "overhead",
    "test accuracy",
)


def facts(setting: Setting, runs: Mapping[str, TrainingRun]) -> dict[str, Any]:
    """Return all that is known of finished runs, of which one is named "regular", as JSON can hold it.

    The prediction rests on the median time of a batch in the regular run, and on an overhead of nothing.
    """
    samples = len(setting.data.train)
    model = CostModel(samples, setting.batch_size, median(runs["regular"].batch_times))
    return {
        "data": setting.data.name,
        "network": setting.network,
        "samples": samples,
        "test_samples": len(setting.data.test),
        "schedule": setting.schedule.to_dict(),
        "prune": setting.prune,
        "pruned_samples": count_pruned(samples, setting.prune),
        "batch_size": setting.batch_size,
        "batch_seconds": model.batch_time,
        "learning_rate": setting.learning_rate,
        "seed": setting.seed,
        "runs": {name: _run(setting, model, run, runs["regular"]) for name, run in runs.items()},
    }


def _run(setting: Setting, model: CostModel, run: TrainingRun, regular: TrainingRun) -> dict[str, Any]:
    row: dict[str, Any] = {
        "epochs": len(run.epochs),
        "pruned_epochs": sum(epoch.pruned for epoch in run.epochs),
        "visits": sum(epoch.visits for epoch in run.epochs),
        "seconds": run.seconds,
        "accuracy_percent": 100 * fmean(epoch.accuracy for epoch in run.epochs[-3:]),
        "history": [asdict(epoch) for epoch in run.epochs],
    }
    if run.pruner is None:
        return row | {"predicted_seconds": model.predict(setting.schedule, setting.prune).regular_seconds}
    predicted = model.predict(setting.schedule, setting.prune)
    measured = model.measured(regular.seconds, run.seconds, setting.schedule, setting.prune)
    paired = paired_percent(regular, run)
    overhead = sum(epoch["overhead"] for epoch in run.pruner.history)
    return row | {
        "predicted_seconds": predicted.pruned_seconds,
        "predicted_saving_percent": predicted.saved_percent,
        "measured_saving_percent": measured.measured_percent,
        "measured_over_predicted": measured.ratio,
        "paired_saving_percent": paired,
        "paired_over_predicted": paired / predicted.saved_percent if predicted.saved_percent else None,
        "overhead_seconds": overhead,
        "overhead_percent": 100 * overhead / run.seconds,
    }


def table(result: Mapping[str, Any]) -> str:
    """Return the facts as a table with one row a run, and what must be said beside it."""
    rows = [HEADINGS, *(_cells(name, run) for name, run in result["runs"].items())]
    return "\n".join(["", *aligned(rows), "", *_remarks(result)])


def _cells(name: str, run: Mapping[str, Any]) -> tuple[str, ...]:
    start = (name, str(run["epochs"]), str(run["pruned_epochs"]), f"{run['visits']:,}")
    saving: tuple[str, ...] = ("-", "-", "-")
    if "overhead_seconds" in run:
        saving = (
            f"{run['predicted_saving_percent']:.2f}%",
            f"{run['measured_saving_percent']:.2f}%",
            f"{run['overhead_seconds']:.2f} s ({run['overhead_percent']:.2f}%)",
        )
    return (*start, *saving, f"{run['accuracy_percent']:.2f}%")


def _remarks(result: Mapping[str, Any]) -> list[str]:
    ratios = [
        f"{name} {run['measured_over_predicted']:.2f} ({run['paired_over_predicted']:.2f})"
        for name, run in result["runs"].items()
        if run.get("measured_over_predicted") is not None
    ]
    seconds = ", ".join(f"{name} {run['seconds']:.1f} s" for name, run in result["runs"].items())
    remarks = [
        f"Training alone, tests apart, in processor seconds: {seconds}; "
        f"median batch {1e3 * result['batch_seconds']:.1f} ms."
    ]
    if ratios:
        remarks.append(
            "Measured over predicted saving: " + ", ".join(ratios) + "; in brackets by medians of paired epochs."
        )
    return [
        *remarks,
        "Test accuracy is the mean of the last three epochs, of one seed.",
        f"Loss curves: {result['picture']}",
        "On clean labels pruning costs accuracy. It pays where labels are wrong: `make demo`, docs/evidence/results.md",
    ]


COLOURS = {"regular": DARK_GREY, "dropping-count": BLUE, "random": VERMILION}
STRIP = "#6f93b8"


def draw(
    path: Path, title: str, schedule: Schedule, losses: Mapping[str, tuple[Sequence[float], Sequence[float]]]
) -> None:
    """Write a PNG with a curve for each run.

    Parameters
    ----------
    path : Path
        The file to write, replaced if it is there.
    title : str
        One line above the picture.
    schedule : Schedule
        Whose pruned epochs are shaded, and whose windows mark the strip.
    losses : mapping of str to (training losses, test losses)
        Of each run, the mean loss of each epoch (cross-entropy, in nats).
    """
    figure = new_figure(9, 6.4)
    train, test, strip = figure.subplots(3, 1, sharex=True, height_ratios=[10, 10, 1])
    figure.suptitle(title, fontsize=11)
    _curves(train, schedule, {name: curves[0] for name, curves in losses.items()})
    _curves(test, schedule, {name: curves[1] for name, curves in losses.items()})
    train.set_ylabel("training loss (nats)\nof the samples kept")
    test.set_ylabel("test loss (nats)")
    lines = train.get_lines()
    train.legend(
        [*lines, Patch(color=SHADE)],
        [*losses, "pruned epoch"],
        ncols=len(lines) + 1,
        loc="upper right",
        fontsize=9,
    )
    _strip(strip, schedule)
    save(figure, path)


def _curves(axes: Axes, schedule: Schedule, curves: Mapping[str, Sequence[float]]) -> None:
    """A line for each run, over the shade of pruned epochs."""
    for epoch in schedule.pruned_epochs:
        axes.axvspan(epoch - 0.5, epoch + 0.5, color=SHADE, linewidth=0, zorder=0)
    for name, losses in curves.items():
        axes.plot(range(schedule.epochs), losses, color=COLOURS[name], label=name, linewidth=1.5)
    values = [value for losses in curves.values() for value in losses]
    if 0 < 30 * min(values) < max(values):  # on a linear scale all but the first epochs would be one flat line
        axes.set_yscale("log")
    tidy(axes)
    axes.grid(visible=False, axis="x")  # epochs are told by the shade and the strip


def _strip(axes: Axes, schedule: Schedule) -> None:
    """A cell for each epoch, filled where it is pruned; a line where a window begins."""
    for epoch in range(schedule.epochs):
        colour = STRIP if schedule.prunes(epoch) else "white"
        axes.axvspan(epoch - 0.5, epoch + 0.5, facecolor=colour, edgecolor="#9aa7b5", linewidth=0.5)
    for first, _ in schedule.windows[1:]:
        axes.axvline(first - 0.5, color="black", linewidth=2)
    axes.set(xlim=(-0.5, schedule.epochs - 0.5), ylim=(0, 1), yticks=[])
    axes.set_xlabel("epoch (filled: pruned; black line: a window begins, counts start anew, learning rate drops)")
    axes.set_ylabel("schedule", rotation=0, ha="right", va="center")


LINES = {"regular": DARK_GREY, "auto": BLUE, "at random": VERMILION, "fewer epochs": ORANGE}


def draw_accuracy(path: Path, title: str, histories: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Write the picture of the first minute as a PNG: test accuracy over the visits that it took, a line for each run.

    Parameters
    ----------
    path : Path
        The file to write, replaced if it is there.
    title : str
        One line above the picture.
    histories : mapping of str to mapping
        Of each run, ``visits`` and ``accuracy_percent`` of each epoch.
    """
    figure = new_figure(8, 4.6)
    axes = figure.subplots()
    for name, history in histories.items():
        thousands = [visits / 1000 for visits in accumulate(history["visits"])]
        axes.plot(thousands, history["accuracy_percent"], color=LINES[name], linewidth=1.8, label=name)
        axes.plot(thousands[-1:], history["accuracy_percent"][-1:], "o", color=LINES[name])
    axes.set_title(title, fontsize=11)
    axes.set(xlabel="samples trained on so far, thousands (dot: the end of a run)", ylabel="test accuracy, %")
    axes.legend(frameon=False)
    tidy(axes)
    save(figure, path)
