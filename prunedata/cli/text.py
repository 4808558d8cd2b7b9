"""Plain text for a terminal: the strip of a schedule, aligned tables, and the progress of a command."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from prunedata.checks import printable
from prunedata.plan.schedule import Schedule

BLOCKS, LETTERS = "░█", ".#"  # an epoch on all samples, an epoch on pruned data
WIDTH, MOST_ROWS = 100, 40
ANEW = "\r\x1b[K"  # to the begin of the line, and what follows stands in the place of all that is there


def marks(encoding: str | None) -> str:
    """Return two characters for a strip that a stream of this encoding can hold."""
    try:
        BLOCKS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return LETTERS
    return BLOCKS


def strip(schedule: Schedule, two: str) -> list[str]:
    """Return a line per window: its first epoch, then `two[prunes]` for each. Long windows are folded."""
    rows = [
        (row, min(row + WIDTH, first + length))
        for first, length in schedule.windows
        for row in range(first, first + length, WIDTH)
    ]
    digits = len(str(rows[-1][0]))
    lines = [
        f"{a:>{digits}}  " + "".join(two[schedule.prunes(epoch)] for epoch in range(a, b)) for a, b in rows[:MOST_ROWS]
    ]
    return lines if len(rows) <= MOST_ROWS else [*lines, f"... and {len(rows) - MOST_ROWS} more rows"]


def bar(share: float, two: str, width: int = 40) -> str:
    """Return a bar for a share from 0 to 1; a share above 0 shows at least one mark."""
    return two[1] * max(round(share * width), share > 0)


def table(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Return rows of equal length as lines with aligned columns: those in `left` left, others right.

    Names may be from a file: what a terminal would take for a command is shown as an escape.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def listing(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, tuple[str, str]], left: Sequence[int] = ()
) -> list[str]:
    """Return a head and a line for each row; ``columns`` has head and format of its values by name; None becomes -."""
    cells = [
        ["-" if row[name] is None else format(row[name], form) for name, (_, form) in columns.items()] for row in rows
    ]
    return table([[head for head, _ in columns.values()], *cells], left)


def can_erase(stream: TextIO) -> bool:
    """Whether a stream is a terminal in which what was written can be erased; one called dumb shows such commands."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def working(what: str = "") -> Iterator[Callable[[float, str], None]]:
    """Show a message while the block runs, until it calls what this yields with the share done and the present step.

    The share is from 0 to 1. Nothing is shown if standard error is no terminal, or one that cannot erase a line.
    """
    two, shows = marks(sys.stderr.encoding), can_erase(sys.stderr)

    def show(text: str) -> None:
        if shows:
            print(text, end="", file=sys.stderr, flush=True)

    show(what)
    try:
        yield lambda share, step: show(f"{ANEW}{bar(share, two, 30):{two[0]}<30} {step}")
    finally:
        show(ANEW)
