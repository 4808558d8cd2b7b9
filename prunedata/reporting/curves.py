"""The curve of a run as a picture: its validation figure, or its mean loss where it has no figure."""

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np

from prunedata.plan.onset import find_onset
from prunedata.reporting.facts import RunFacts
from prunedata.types import Floats, Mask

MOST_POINTS = 200  # of a curve: more epochs are averaged, so that a page stays small however long the run
INK, ACCENT, PALE = "#4a5468", "#3f51b5", "#cdd4f5"
STYLE: dict[Any, Any] = {
    "font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "prunedata", "axes.labelcolor": INK, "axes.edgecolor": INK,
    "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip


def curve(run: RunFacts, runs: Sequence[RunFacts]) -> dict[str, str] | None:
    """Draw the validation figure of a run, or its mean loss; None if it has neither.

    All `runs` of the page are drawn on one scale. Epochs that left samples out are shaded, and the memorization onset
    is marked. Returns ``source``, the ``data:`` address of an SVG, its ``title``, and ``told``, its description.
    """
    figures = find_onset(run.history)
    name = "validation" if figures.number else "mean_loss"
    values = run.column(name)
    known = np.flatnonzero(np.isfinite(values))
    if not known.size:
        return None
    told = f"{values[known[-1]]:.4g} in epoch {known[-1]:,}."
    if known.size > 1:
        told = f"From {values[known[0]]:.4g} in epoch {known[0]:,} to {told}"
    if figures.onset is not None:
        told += f" Best around epoch {figures.best:,}, and clearly worse by epoch {figures.onset:,}."
    told += " Shaded epochs left samples out." if run.pruned.any() else ""
    every = np.concatenate([other.column(name) for other in runs])
    ends, epochs = (float(np.nanmin(every)), float(np.nanmax(every))), max(other.done for other in runs)
    best = None if figures.onset is None else figures.best
    title = "Validation figure of each epoch" if figures.number else "Mean loss of each epoch"
    return {"title": title, "told": told, "source": _drawn(values, run.pruned, best, ends, epochs)}


def _drawn(values: Floats, pruned: Mask, best: int | None, ends: tuple[float, float], epochs: int) -> str:
    from matplotlib import rc_context, rcdefaults, rcParams  # noqa: PLC0415 (slow, and only a report needs it)
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    step = -(-len(values) // MOST_POINTS)
    first = np.arange(0, len(values), step)
    with rc_context():
        rcdefaults()  # not the style of the user's own pictures
        rcParams.update(STYLE)
        figure = Figure(figsize=(4.6, 2.3), layout="tight")
        axes = figure.subplots()
        edges = np.append(first, len(values)) - 0.5
        shade = np.append(_averaged(pruned.astype(np.float64), step), 0.0)
        axes.fill_between(edges, shade, step="post", color=PALE, linewidth=0, transform=axes.get_xaxis_transform())
        at = first + (np.minimum(step, len(values) - first) - 1) / 2
        axes.plot(at, _averaged(values, step), color=INK, marker="." if len(first) <= 40 else None)
        if best is not None:
            axes.axvline(best, color=ACCENT, linestyle="--")
            place: dict[str, Any] = {"xycoords": axes.get_xaxis_transform(), "ha": "center"}
            axes.annotate("memorization onset", (best, 1.02), color=ACCENT, **place)
        pad = 0.08 * (ends[1] - ends[0]) or 0.1 * abs(ends[1]) or 1.0
        axes.set_ylim(ends[0] - pad, ends[1] + pad)
        axes.set_xlim(-0.5, epochs - 0.5)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        axes.yaxis.set_major_locator(MaxNLocator(4))
        file = BytesIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return "data:image/svg+xml;base64," + b64encode(file.getvalue()).decode("ascii")


def _averaged(values: Floats, step: int) -> Floats:
    """The mean of each `step` values, those that are not known left out; NaN where none is."""
    blocks = np.pad(values, (0, -len(values) % step), constant_values=np.nan).reshape(-1, step)
    known = np.isfinite(blocks)
    return np.asarray(np.where(known, blocks, 0.0).sum(axis=1) / np.where(known.any(axis=1), known.sum(axis=1), np.nan))
