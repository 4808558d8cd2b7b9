"""What the command lines share: parsers, arguments of one meaning, and kinds of values for ``type=`` of argparse."""

import argparse
from pathlib import Path

from benchmarks.common.records import Runs

__all__ = ["add_images", "add_results", "positive", "program", "share"]

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
