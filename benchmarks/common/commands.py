"""What commands share: their arguments, and the tables that they print or put into pages, in Markdown."""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean

from benchmarks.common.records import Runs
from prunedata.cli.text import table

__all__ = [
    "END",
    "add_images",
    "add_results",
    "aligned",
    "fill",
    "gain",
    "markdown",
    "positive",
    "program",
    "share",
    "show",
]

END = "<!-- end -->"
"""Behind what a command writes into a page."""


def aligned(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Rows of equal length as lines, the first above a rule; cells of the columns in `left` stand to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head, *others = table(rows, left)
    return [head, "  ".join("-" * width for width in widths), *others]


def gain(points: Sequence[float], alone: str = "", beside: str = "") -> str:
    """The mean of gains, one of each seed, and in brackets the lowest and the highest; "" of none.

    ``alone`` is put behind the gain of a single seed, ``beside`` into the brackets of several.
    """
    if not points:
        return ""
    # Adding 0 makes -0.0 a plain one.
    middle, low, high = (f"{round(one, 1) + 0.0:+.1f}" for one in (mean(points), min(points), max(points)))
    return f"{middle}{alone}" if len(points) == 1 else f"{middle} ({low} to {high}{beside})"


def markdown(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table with aligned columns."""
    lines = [list(columns), *map(list, rows)]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    cells = ((text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def fill(page: Path, begin: str, written: str) -> str:
    """Return a page with what stands between the line ``begin`` and :data:`END` brought up to date."""
    text = page.read_text(encoding="utf-8")
    head, found, rest = text.partition(begin)
    _, end, tail = rest.partition(END)
    if not found or not end:
        raise ValueError(f"Expected the lines {begin} and {END} in {page}.")
    return f"{head}{begin}\n\n{written}\n{END}{tail}"


def show(text: str, begin: str, page: Path | None) -> int:
    """Print a text, or write it into a page behind the line ``begin``, see :func:`fill`; return the exit status."""
    if page is None:
        print(text, end="")
    else:
        page.write_text(fill(page, begin, text), encoding="utf-8")
    return 0


ROOT = Path(__file__).parents[2]


def program(module: str, about: str | None) -> argparse.ArgumentParser:
    """Return a parser for ``python -m module``; the first line of ``about`` describes it."""
    return argparse.ArgumentParser(prog=f"python -m {module}", description=(about or "").partition("\n")[0])


def add_images(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Add ``--data``, a folder of images in the hub's parquet layout; ``more`` is said behind its default."""
    text = f"train-*.parquet and test-*.parquet; default: digits{more}"
    parser.add_argument("--data", type=Path, metavar="FOLDER", help=text)


def add_results(parser: argparse.ArgumentParser, recorded: Runs) -> None:
    """Add ``--results``, by default a file of the checkout."""
    text = f"default: {recorded.file.relative_to(ROOT).as_posix()}"
    parser.add_argument("--results", type=Runs, default=recorded, metavar="FILE", help=text)


def positive(text: str) -> int:
    """Read an integer of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"Expected an integer of at least 1. Got {text}.")
    return number


def share(text: str) -> float:
    """Read a share from 0 to 1."""
    number = float(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"Expected a share from 0 to 1. Got {text}.")
    return number
