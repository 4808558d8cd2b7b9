"""Tables in Markdown."""

from collections.abc import Iterable

__all__ = ["markdown"]


def markdown(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table with aligned columns."""
    lines = [list(columns), *map(list, rows)]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    cells = ((text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)
