"""How all pictures are made: figures, their frames, and files that are small."""

from io import BytesIO
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

__all__ = ["new_figure", "save", "tidy"]


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
