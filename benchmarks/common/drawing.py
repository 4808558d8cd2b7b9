"""How all pictures are made: figures, their frames, and files that are small."""

from io import BytesIO
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

__all__ = [
    "BLACK",
    "BLUE",
    "DARK_GREY",
    "GREEN",
    "GREY",
    "INDIGO",
    "LIGHT_GREY",
    "OLIVE",
    "ORANGE",
    "PINK",
    "SHADE",
    "SKY",
    "SPARE_COLOURS",
    "SPARE_MARKERS",
    "VERMILION",
    "WINE",
    "new_figure",
    "save",
    "tidy",
]


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


# The colours of all pictures: Okabe and Ito's first, then Tol's, told apart with any colour vision.
BLACK, DARK_GREY, GREY, LIGHT_GREY = "#000000", "#404040", "#8a8a8a", "#999999"
BLUE, VERMILION, ORANGE, SKY, GREEN, PINK = "#0072b2", "#d55e00", "#e69f00", "#56b4e9", "#009e73", "#cc79a7"
WINE, OLIVE, INDIGO = "#882255", "#999933", "#332288"
SPARE_COLOURS = ("#dd3497", "#117733", "#aa4499", "#661100", "#6699cc")
SPARE_MARKERS = ("h", "H", "8")
"""For what has no colour or marker of its own."""
SHADE = "#e4ecf4"
"""Behind pruned epochs."""
