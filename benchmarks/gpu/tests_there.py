"""The tests marked ``cuda``, run where the device is."""

import re
import subprocess
import sys
from pathlib import Path

from benchmarks.common.records import Facts
from benchmarks.gpu.costs import Piece, Place, named

__all__ = ["files", "pieces"]

ROOT = Path(__file__).parents[2]
SECONDS = 120
"""At most."""


def files() -> list[str]:
    """The files that have such tests, relative to the checkout."""
    found = (ROOT / "tests").rglob("test_*.py")
    return sorted(str(file.relative_to(ROOT)) for file in found if "mark.cuda" in file.read_text(encoding="utf-8"))


def _run(place: Place) -> Facts:
    # Another release of PyTorch than the one that the tests are pinned to may warn of other things.
    command = [sys.executable, "-m", "pytest", "-q", "-m", "cuda", "-W", "default", "-p", "no:cacheprovider", *files()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-300:]
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", last)}
    right = done.returncode == 0 and (counts.get("passed", 0) > 0 or not place.full)
    if not right:
        print(done.stdout[-6000:], done.stderr[-1000:])
    return {"right": right, "said": last, **counts, "hardware": named(place)}


def pieces(place: Place) -> list[Piece]:
    """One piece for all of them."""
    return [Piece("tests/cuda", 60, lambda: _run(place))]
