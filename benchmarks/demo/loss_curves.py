"""The demo's picture: loss curves, and the schedule as a strip below."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from benchmarks.common.drawing import new_figure, save, tidy
from benchmarks.common.palette import BLUE, DARK_GREY, SHADE, VERMILION
from prunedata import Schedule

__all__ = ["draw"]

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
