"""Run what a GPU is needed for, within a budget of seconds, or print the tables of what was recorded."""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.common.commands import add_images, add_results, fill, program
from benchmarks.common.records import Facts, Runs
from benchmarks.gpu import costs, deep, exact
from benchmarks.gpu.costs import Piece, Place, go_through, named
from benchmarks.gpu.tables import BEGIN, parts

__all__ = ["PARTS", "RESULTS", "files", "main"]

RESULTS = Runs(Path(__file__).with_name("results.jsonl.bz2"))
"""By the names of the pieces."""
ROOT = Path(__file__).parents[2]
LONGEST = 120
"""Seconds that the tests may take."""


def files() -> list[str]:
    """The files that have tests marked ``cuda``, relative to the checkout."""
    found = (ROOT / "tests").rglob("test_*.py")
    return sorted(str(file.relative_to(ROOT)) for file in found if "mark.cuda" in file.read_text(encoding="utf-8"))


def _tests_there(place: Place) -> Facts:
    # Another release of PyTorch than the one that the tests are pinned to may warn of other things.
    command = [sys.executable, "-m", "pytest", "-q", "-m", "cuda", "-W", "default", "-p", "no:cacheprovider", *files()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST, check=False)
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-300:]
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", last)}
    right = done.returncode == 0 and (counts.get("passed", 0) > 0 or not place.full)
    if not right:
        print(done.stdout[-6000:], done.stderr[-1000:])
    return {"right": right, "said": last, **counts, "hardware": named(place)}


def _tests(place: Place) -> list[Piece]:
    """One piece for all tests marked ``cuda``."""
    return [Piece("tests/cuda", 60, lambda: _tests_there(place))]


PARTS = {
    "tests": _tests, "exact": exact.pieces, "costs": costs.pieces, "networks": deep.ten_networks,
    "watch": costs.watch, "deep": deep.arms,
}  # fmt: skip
"""In the order in which they run."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with command-line `arguments`; return the exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command == "table":
        return _tables(given.results, given.page)
    until = time.monotonic() + given.seconds
    kind = given.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if kind == "cuda" and not torch.cuda.is_available():
        parser.error("Expected a GPU for --device cuda. Got none: --device cpu runs all of it at a tiny size.")
    place = Place(torch.device(kind), given.data, given.labels, given.compile)
    if place.full and place.data is None:
        parser.error("Expected --data, a folder of CIFAR-10, on a GPU. Got none.")
    print(f"{named(place)}, torch {torch.__version__}, {given.seconds} s")
    with tempfile.TemporaryDirectory() as folder:
        recorded = given.results if place.full or given.results != RESULTS else Runs(Path(folder) / "tried.jsonl.bz2")
        found: list[Piece] = [piece for part in given.parts for piece in PARTS[part](place)]
        if not place.full:  # the estimates are a GPU's
            found = [replace(piece, seconds=0) for piece in found]
        return 0 if go_through(found, recorded, until, given.again) else 1


def _tables(recorded: Runs, page: Path | None) -> int:
    """Print the tables, or write them into a page."""
    for name, text in parts(recorded.read()).items():
        if page is None:
            print(f"{name}\n\n{text}\n")
        elif text:
            page.write_text(fill(page, BEGIN.format(name), f"{text}\n"), encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = program("benchmarks.gpu", __doc__)
    add = parser.add_argument
    add("command", nargs="?", choices=("run", "table"), default="run", help="default: %(default)s")
    add("--page", type=Path, help="write the tables into this page")
    add("--device", choices=("cuda", "cpu"), help="default: a GPU if there is one; on a CPU all is tiny and not kept")
    add("--seconds", type=float, default=500, help="no piece begins that would take longer; default: %(default)s")
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="default: all")
    add("--compile", action="store_true", help="run the deep networks through torch.compile")
    add("--again", action="store_true", help="also what is recorded")
    add_images(parser)
    add("--labels", type=Path, metavar="NPZ", help="CIFAR-10N's labels, for the arms of people's labels")
    add_results(parser, RESULTS)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
