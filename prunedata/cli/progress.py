"""Progress of a command on a terminal, erased at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from prunedata.cli.text import bar, marks

__all__ = ["meter", "progress", "working"]


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a message while the block runs. Nothing is shown if standard error is no terminal."""
    shown = sys.stderr.isatty()
    if shown:
        print(what, end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)  # what is printed next stands in its place


@contextmanager
def meter() -> Iterator[Callable[[float, str], None]]:
    """Yield a function that shows the share done, from 0 to 1, and the present step."""
    with working(""):
        two = marks(sys.stderr.encoding)

        def show(share: float, what: str) -> None:
            if sys.stderr.isatty():
                print(f"\r\x1b[K{bar(share, two, 30):{two[0]}<30} {what}", end="", file=sys.stderr, flush=True)

        yield show


def progress(items: Iterable[str], what: str) -> Iterator[str]:
    """Yield the items, and show how many are done."""
    items = list(items)
    shown, two = sys.stderr.isatty(), marks(sys.stderr.encoding)
    for done, item in enumerate(items):
        if shown:
            line = f"\r{bar(done / len(items), two, 30):{two[0]}<30} {done:,} of {len(items):,} {what}"
            print(line, end="", file=sys.stderr, flush=True)
        yield item
