"""How the study's pictures look: a colour and a marker for each arm, the same in all of them."""

import re
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from benchmarks.demo.loss_curves import COLOURS

__all__ = ["Named", "colour", "kind_of_labels", "marker", "new_figure", "parse", "save", "tidy"]

LOOKS = {
    "regular": (COLOURS["regular"], "o"),
    "fewer-epochs": ("#8a8a8a", "s"),
    "random": (COLOURS["random"], "D"),
    "random-run": ("#e69f00", "P"),
    "dropping-count": (COLOURS["dropping-count"], "v"),
    "dropping-count-run": ("#56b4e9", "^"),
    "running-loss": ("#009e73", "p"),
    "infobatch": ("#cc79a7", "X"),
    "loss-ranked": ("#882255", "<"),
    "easy": ("#999933", ">"),
    "auto": ("#332288", "d"),
    "known-wrong": ("#999999", "*"),
}
"""Okabe and Ito's palette first, then Tol's: told apart with any colour vision. Markers differ as well."""
OTHER = "#dd3497", "h"
"""Of an arm that is no more, or that has no look yet."""

NAME = re.compile(
    r"(?P<network>[^-]+)-(?P<size>\w+x\d+)(?P<plain>-plain)?-(?P<noise>clean|(?:random|confusable)[\d.]+)"
    r"-(?P<arm>[a-z][a-z-]*?)(?:-(?P<saving>[\d.]+))?-seed(?P<seed>\d+)"
)


@dataclass(frozen=True)
class Named:
    """What the name of a run's file says; ``saving`` in percent, as text, empty for regular training."""

    network: str
    size: str
    noise: str
    arm: str
    saving: str
    seed: int

    @property
    def kind(self) -> str:
        """Network, arm and saving: what two runs share that differ by their seed alone."""
        return f"{self.network} {self.arm}{f' {self.saving}%' if self.saving else ''}"


def parse(name: str) -> Named:
    """Read a name that :attr:`benchmarks.study.recipe.Recipe.name` made."""
    found = NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"Expected the name of a run, as lenet-10000x120-clean-regular-seed0. Got {name!r}.")
    size = found["size"] + (found["plain"] or "")
    return Named(found["network"], size, found["noise"], found["arm"], found["saving"] or "", int(found["seed"]))


def colour(arm: str) -> str:
    """Return the colour of an arm."""
    return LOOKS.get(arm, OTHER)[0]


def marker(arm: str) -> str:
    """Return the marker of an arm."""
    return LOOKS.get(arm, OTHER)[1]


def kind_of_labels(noise: str) -> str:
    """Say what ``random20`` and the like mean."""
    found = re.fullmatch(r"(random|confusable)([\d.]+)", noise)
    if found is None:
        return f"{noise} labels"
    return f"{found[2]}% of the labels wrong{' at random' if found[1] == 'random' else ', confusable'}"


def new_figure(width: float, height: float) -> Figure:
    """Return a figure of its own, not pyplot's: nothing global, and no window where there is no screen. In inches."""
    return Figure(figsize=(width, height), dpi=110, layout="constrained")


def tidy(axes: Axes) -> None:
    """Leave of the frame what is needed."""
    axes.grid(color="#dedede", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, path: Path, photographs: bool = False) -> Path:
    """Write a PNG and return its path; without photographs of at most 256 colours, which is a third as large."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if photographs:
        figure.savefig(path, format="png")
        return path
    full = BytesIO()
    figure.savefig(full, format="png")
    Image.open(full).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
    return path
