"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from fractions import Fraction

from prunedata.errors import PrunedataError
from prunedata.findings.top import count_top

__all__ = ["add_top", "number"]


def number(text: str) -> int | float:
    """Return a written number as an int if it is one; a percentage, as 20%, as a fraction."""
    try:
        return float(Fraction(text[:-1]) / 100) if text.endswith("%") else int(text)
    except (ValueError, ZeroDivisionError):
        return float(text)


def add_top(parser: argparse.ArgumentParser, default: int | float, what: str) -> None:
    """Add ``--top`` to a command."""
    told = f"{what}: a number, or a fraction as 0.1 or 10%% ({default:g})"
    parser.add_argument("--top", type=_top, default=default, metavar="N", help=told)


def _top(text: str) -> int | float:
    top = number(text)
    try:
        count_top(top, 1)
    except PrunedataError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return top
