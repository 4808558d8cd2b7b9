"""The strip of a run: an epoch beside the other, a row for each window, pruned ones high."""

from __future__ import annotations

from prunedata.reporting.drawing.markup import Markup, tag
from prunedata.reporting.drawing.svg import runs, step_ticks
from prunedata.reporting.facts import RunFacts
from prunedata.reporting.wording import few, plural

__all__ = ["strip"]

WIDE, PITCH, HIGH, LOW = 1000, 30, 20, 6
MOST_ROWS = 12
SINGLE = 150
"""Epochs in a row, up to which each is a bar of its own; of more, a bar stands for several."""


def strip(run: RunFacts) -> Markup:
    """Return the strip as SVG: a row for each window, or some rows of one length if there are very many windows."""
    rows = list(run.schedule.windows)
    if len(rows) > MOST_ROWS:
        length = -(-run.total // MOST_ROWS)
        rows = [(first, min(length, run.total - first)) for first in range(0, run.total, length)]
    longest = max(length for _, length in rows)
    drawn = [_row(run, at, row, longest, named=len(rows) > 1) for at, row in enumerate(rows)]
    foot = len(rows) * PITCH
    across = [
        tag("text", few(at), x=f"{100 * at / longest:.2f}%", y=foot + 10, class_="start")
        for at in step_ticks(0, longest)
    ]
    named = "epoch" if len(rows) == 1 else "epoch within its row"
    return tag(
        "svg",
        tag("title", f"Schedule of {run.name}"),
        tag("desc", f"{plural(sum(run.planned), 'epoch')} of {run.total:,} on pruned data, {run.done:,} done."),
        *drawn,
        *across,
        tag("text", named, x="100%", y=foot + 26, class_="end"),
        class_="strip",
        role="img",
        width="100%",
        height=foot + 32,
    )


def _row(run: RunFacts, at: int, row: tuple[int, int], longest: int, *, named: bool) -> Markup:
    """A row: low bars for epochs on all samples, high ones for pruned epochs, pale what is still ahead."""
    (first, length), parts = row, []
    now, last = max(first, min(run.done, first + length)), first + length
    for begin, end, state in ((first, now, "done"), (now, last, "ahead")):
        if begin < end:
            part = run.planned[begin:end]
            parts += [
                _bars([not pruned for pruned in part], begin - first, longest, LOW, f"whole {state}"),
                _bars(part, begin - first, longest, HIGH, f"pruned {state}"),
            ]
    label = tag("text", f"{first:,}", x=-8, y=HIGH - 2, class_="side") if named else None
    inner = tag(
        "svg",
        *parts,
        width="100%",
        height=HIGH,
        viewBox=f"0 0 {WIDE} {HIGH}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    return tag("g", label, inner, transform=f"translate(0 {at * PITCH})")


def _bars(flags: tuple[bool, ...] | list[bool], first: int, longest: int, high: int, class_: str) -> Markup:
    unit, gap = WIDE / longest, 0.18 if longest <= SINGLE else 0.0
    found = runs(flags, SINGLE)
    if high == LOW:  # where a bar stands for several epochs, it says how many of them are pruned
        found = [one for one in found if one[2] == 1]
    if gap:
        found = [(one, one + 1, 1.0) for begin, end, _ in found for one in range(begin, end)]
    drawn = "".join(
        f"M{unit * (first + begin):.1f} {HIGH}v-{high * share:.1f}h{unit * (end - begin - gap):.2f}v{high * share:.1f}z"
        for begin, end, share in found
    )
    return tag("path", d=drawn, class_=class_) if drawn else Markup()
