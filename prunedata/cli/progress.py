"""What a command shows on a terminal while it works, and takes away again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from prunedata.cli.text import bar, marks

__all__ = ["meter", "progress", "working"]


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show what is being done. Nothing is shown where standard error is no terminal."""
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
    """Give what shows how much is done, from 0 to 1, and what is being done."""
    with working(""):
        two = marks(sys.stderr.encoding)

        def show(share: float, what: str) -> None:
            if sys.stderr.isatty():
                print(f"\r\x1b[K{bar(share, two, 30):{two[0]}<30} {what}", end="", file=sys.stderr, flush=True)

        yield show


def progress(items: Iterable[str], what: str) -> Iterator[str]:
    """Yield the items, and show how many of them are done."""
    items = list(items)
    shown, two = sys.stderr.isatty(), marks(sys.stderr.encoding)
    for done, item in enumerate(items):
        if shown:
            line = f"\r{bar(done / len(items), two, 30):{two[0]}<30} {done:,} of {len(items):,} {what}"
            print(line, end="", file=sys.stderr, flush=True)
        yield item
