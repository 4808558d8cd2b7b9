"""How large the repository is, beside what it is meant to stay below.

    python -m benchmarks.size

Lines are those of tracked Python files; the clone is made of the last commit, with ``--depth 1``. The exit status is 1
if anything is above its limit.
"""

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.commands import markdown, program

__all__ = ["LIMITS", "Size", "main", "sizes"]

ROOT = Path(__file__).parents[1]
ROOMS = {"core": "prunedata", "adapters": "adapters", "tests": "tests", "benchmarks": "benchmarks"}
LIMITS = {"core": 10_500, "adapters": 6_500, "tests": 32_000, "tracked files": 700, "clone without history": 12.0}
"""Lines of a room, files, and megabytes."""


@dataclass(frozen=True)
class Size:
    """How large a part is, in lines, files or megabytes, and of how many files it is made."""

    part: str
    value: float
    unit: str
    files: int

    @property
    def limit(self) -> float | None:
        """What it is meant to stay below or at; None if nothing is said."""
        return LIMITS.get(self.part)

    @property
    def is_good(self) -> bool:
        return self.limit is None or self.value <= self.limit


def sizes(root: Path) -> list[Size]:
    """Return the sizes of a checkout: its rooms, its tracked files, and a clone of its last commit."""
    tracked = [root / name for name in _git(root, "ls-files", "-z").split("\0")[:-1]]
    found = []
    for room, folder in ROOMS.items():
        files = [
            path for path in tracked if path.suffix == ".py" and path.is_relative_to(root / folder) and path.exists()
        ]
        found.append(Size(room, sum(path.read_bytes().count(b"\n") for path in files), "lines", len(files)))
    with tempfile.TemporaryDirectory() as folder:
        _git(root, "clone", "--quiet", "--depth", "1", root.as_uri(), folder)
        held = [path for path in Path(folder).rglob("*") if path.is_file() and not path.is_symlink()]
        clone = Size("clone without history", sum(path.stat().st_size for path in held) / 1e6, "MB", len(held))
    return [*found, Size("tracked files", len(tracked), "files", len(tracked)), clone]


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run with command-line `arguments`; return the exit status, 1 if anything is too large."""
    program("benchmarks.size", __doc__).parse_args(arguments)
    found = sizes(root)
    rows = [[one.part, _told(one.value, one.unit), f"{one.files:,}", _limit(one)] for one in found]
    print(markdown(("what", "is", "files", "limit"), rows))
    return int(not all(one.is_good for one in found))


def _told(value: float, unit: str) -> str:
    return f"{value:,.1f} MB" if unit == "MB" else f"{value:,.0f} {unit}"


def _limit(one: Size) -> str:
    return "" if one.limit is None else f"{_told(one.limit, one.unit)}{'' if one.is_good else ', above it'}"


if __name__ == "__main__":
    raise SystemExit(main())
