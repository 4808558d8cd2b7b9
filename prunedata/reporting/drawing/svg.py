"""Charts as SVG that fits every width: across in percent, upwards and in its letters in pixels.

What is drawn lies in an inner picture that is stretched from side to side; strokes keep their width, and text, which
must not be stretched, stands outside of it. So a chart is as readable on a phone as on a desk, without a script.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from prunedata.reporting.drawing.markup import Markup, join, tag
from prunedata.reporting.wording import few, ticks
from prunedata.types import Floats, Mask

__all__ = ["Chart", "bars", "binned", "columns", "line", "rows", "runs", "step_ticks"]

WIDE = 1000
"""The inner picture's width, in its own units."""
FINEST = 300
"""Points of a curve, at most: more can't be seen, and thousands of epochs must not make a page heavy."""
TOP, FOOT = 14, 22
"""Pixels above the plot, for the highest label, and below it, for the labels of the axis across."""
LEAST = 1.5
"""Pixels of a bar for a number above 0."""


@dataclass(frozen=True)
class Chart:
    """The frame of a chart: what its axes span, and what it says to those who don't see it.

    ``across`` are the ends of the horizontal axis, ``up`` the labelled values of the vertical one, ``height`` the
    pixels between the lowest and the highest of them.
    """

    title: str
    told: str
    across: tuple[float, float]
    up: Sequence[float]
    across_label: str = "epoch"
    form: Callable[[float], str] = few
    height: int = 150
    across_ticks: Sequence[float] | None = None
    centred: float = 0.0

    def x(self, value: float) -> float:
        """Where a value lies from the left, from 0 to 1."""
        low, high = self.across
        return (value - low) / (high - low)

    def y(self, value: float) -> float:
        """Where a value lies from the top of the plot, in pixels."""
        low, high = self.up[0], self.up[-1]
        return self.height * (high - value) / (high - low)

    def draw(self, *inside: object, labels: Iterable[object] = ()) -> Markup:
        """Return the chart: what is inside in units of the inner picture, labels over it."""
        grid = [
            tag("line", x1=0, x2="100%", y1=_n(self.y(at)), y2=_n(self.y(at)), class_="base" if at == 0 else "grid")
            for at in self.up
        ]
        at_side = [tag("text", self.form(at), x=-8, y=_n(self.y(at) + 4), class_="side") for at in self.up]
        below = [self._across_tick(at) for at in self._across_ticks()]
        below.append(tag("text", self.across_label, x="100%", y=_n(self.height + 32), class_="end"))
        inner = tag(
            "svg",
            *inside,
            width="100%",
            height=self.height,
            viewBox=f"0 0 {WIDE} {self.height}",
            preserveAspectRatio="none",
            overflow="visible",
            aria_hidden="true",
        )
        return tag(
            "svg",
            tag("title", self.title),
            tag("desc", self.told),
            tag("g", *grid, inner, *at_side, *below, *labels, transform=f"translate(0 {TOP})"),
            class_="chart",
            role="img",
            width="100%",
            height=TOP + self.height + FOOT + 14,
        )

    def label(self, text: str, across: float, value: float, class_: str = "end") -> Markup:
        """Return a label of the plot, at a share of the width and just above a value."""
        return tag("text", text, x=_share(across), y=_n(self.y(value) - 6), class_=class_)

    def _across_ticks(self) -> Sequence[float]:
        return step_ticks(*self.across) if self.across_ticks is None else self.across_ticks

    def _across_tick(self, at: float) -> Markup:
        place = self.x(at + self.centred)
        side = "start" if place < 0.02 else "end" if place > 0.98 else "middle"
        return tag("text", few(at), x=_share(place), y=self.height + 16, class_=side)


def step_ticks(low: float, high: float) -> list[float]:
    """Return about five whole numbers from `low` to below `high`."""
    found = [at for at in ticks(low, max(high, low + 1)) if at == int(at) and low <= at < high]
    return found or [low]


def binned(values: Floats) -> tuple[Floats, Floats]:
    """Return middles and means of at most 300 bins of one value an epoch, both of shape (n,); NaN is left out."""
    edges = np.linspace(0, values.size, min(values.size, FINEST) + 1).astype(np.int64)
    known = np.isfinite(values)
    sums = np.add.reduceat(np.where(known, values, 0.0), edges[:-1]) if values.size else np.zeros(0)
    numbers = np.add.reduceat(known.astype(np.int64), edges[:-1]) if values.size else np.zeros(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (edges[:-1] + edges[1:]) / 2, sums / numbers


def line(chart: Chart, across: Floats, values: Floats, class_: str, *, joined: bool = False) -> Markup:
    """Return a curve through the known values; where one is missing it has a gap, unless they are to be joined."""
    known = np.isfinite(values)
    if joined:
        across, values, known = across[known], values[known], known[known]
    parts, pen = [], False
    for at, (x, y, there) in enumerate(zip(across.tolist(), values.tolist(), known.tolist(), strict=True)):
        if there:
            alone = not pen and not (at + 1 < known.size and known[at + 1])
            place = f"{_n(WIDE * chart.x(x))} {_n(chart.y(y))}"
            parts.append(f"{'L' if pen else 'M'}{place}" + ("h0" if alone else ""))
        pen = there
    return tag("path", d="".join(parts), class_=class_) if parts else Markup()


def runs(flags: Sequence[bool] | Mask, finest: int = FINEST) -> list[tuple[int, int, float]]:
    """Return (first, end, share) of stretches of epochs in which the flag's share is alike, of those above 0.

    Up to `finest` epochs each is by itself 0 or 1; of more, a stretch has the share of its bin, in quarters.
    """
    given = np.asarray(flags, dtype=np.float64)
    edges = np.linspace(0, given.size, min(given.size, finest) + 1).astype(np.int64)
    found: list[tuple[int, int, float]] = []
    for first, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        share = math.ceil(4 * float(given[first:end].mean())) / 4
        if share and found and found[-1][1] == first and found[-1][2] == share:
            found[-1] = (found[-1][0], end, share)
        elif share:
            found.append((first, end, share))
    return found


def columns(chart: Chart, stretches: Iterable[tuple[int, int, float]], class_: str) -> Markup:
    """Return stretches of epochs as shades over the whole height."""
    return join(
        *(
            tag(
                "rect",
                x=_n(WIDE * chart.x(first)),
                width=_n(WIDE * (chart.x(end) - chart.x(first))),
                y=0,
                height=chart.height,
                class_=class_,
                opacity=None if share == 1 else share,
            )
            for first, end, share in stretches
        )
    )


def bars(chart: Chart, numbers: Sequence[tuple[float, float, float]], class_: str) -> Markup:
    """Return a histogram's bars: (from, to, number) each."""
    drawn = []
    for first, end, number in numbers:
        if number > 0:
            height = max(LEAST, chart.height - chart.y(number))
            width = WIDE * (chart.x(end) - chart.x(first))
            drawn.append(
                tag(
                    "rect",
                    x=_n(WIDE * chart.x(first) + width * 0.06),
                    width=_n(width * 0.88),
                    y=_n(chart.height - height),
                    height=_n(height),
                    class_=class_,
                )
            )
    return join(*drawn)


def rows(title: str, told: str, lengths: Sequence[tuple[str, str, float, str]], most: float) -> Markup:
    """Return horizontal bars, one below the other: (name, figure, length, class) each; `most` spans the width."""
    pitch = 46
    drawn = []
    for at, (name, figure, length, class_) in enumerate(lengths):
        share = max(0.004, min(1.0, length / most if most else 0.0))
        drawn += [
            tag("text", name, x=0, y=at * pitch + 14),
            tag("text", figure, x="100%", y=at * pitch + 14, class_="end figure"),
            tag("rect", x=0, y=at * pitch + 22, width="100%", height=10, rx=2, class_="track"),
            tag("rect", x=0, y=at * pitch + 22, width=_share(share), height=10, rx=2, class_=class_),
        ]
    return tag(
        "svg",
        tag("title", title),
        tag("desc", told),
        *drawn,
        class_="rows",
        role="img",
        width="100%",
        height=len(lengths) * pitch - 8,
    )


def _n(value: float) -> str:
    """A number short enough for a path."""
    return f"{value:.1f}".removesuffix(".0")


def _share(value: float) -> str:
    return f"{100 * value:.2f}".rstrip("0").rstrip(".") + "%"
