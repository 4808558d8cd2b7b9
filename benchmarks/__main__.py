"""List the rooms of the benchmarks, and what each command writes: ``python -m benchmarks``."""

import ast
from pathlib import Path

__all__ = ["main"]


def main() -> int:
    """Print the docstring of each room; return the exit status."""
    for room in sorted(Path(__file__).parent.glob("*/__init__.py")):
        print(f"benchmarks.{room.parent.name}\n")
        print(*(f"    {line}".rstrip() for line in _docstring(room).splitlines()), "", sep="\n")
    return 0


def _docstring(file: Path) -> str:
    """Read, not imported: frameworks take seconds."""
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


if __name__ == "__main__":
    raise SystemExit(main())
