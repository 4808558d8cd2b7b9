"""The picture of the demo's first minute: test accuracy over the visits that it took."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from benchmarks.common.drawing import BLUE, DARK_GREY, ORANGE, VERMILION, new_figure, save, tidy

__all__ = ["draw"]

COLOURS = {"regular": DARK_GREY, "auto": BLUE, "at random": VERMILION, "fewer epochs": ORANGE}


def draw(path: Path, title: str, histories: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Write a PNG with a line for each run.

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
        axes.plot(thousands, history["accuracy_percent"], color=COLOURS[name], linewidth=1.8, label=name)
        axes.plot(thousands[-1:], history["accuracy_percent"][-1:], "o", color=COLOURS[name])
    axes.set_title(title, fontsize=11)
    axes.set(xlabel="samples trained on so far, thousands (dot: the end of a run)", ylabel="test accuracy, %")
    axes.legend(frameon=False)
    tidy(axes)
    save(figure, path)
