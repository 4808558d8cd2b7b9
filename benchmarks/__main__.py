"""List the rooms of the benchmarks, and what each command writes: ``python -m benchmarks``."""

import ast
import re
from pathlib import Path

__all__ = ["kinds", "main"]

HERE = Path(__file__).parent


def main() -> int:
    """Print the docstring of each room, those of a kind together; return the exit status."""
    rooms = {room.parent.name: room for room in sorted(HERE.glob("*/__init__.py"))}
    others = {"Beside these": sorted(rooms.keys() - {name for names in kinds().values() for name in names})}
    for kind, names in (kinds() | others).items():
        print(f"{kind}\n{'=' * len(kind)}\n")
        for name in names:
            print(f"benchmarks.{name}\n")
            print(*(f"    {line}".rstrip() for line in _docstring(rooms[name]).splitlines()), "", sep="\n")
    return 0


def kinds() -> dict[str, list[str]]:
    """Return the kinds of rooms, and the rooms of each, as the docstring of the package has them."""
    parts = re.split(r"^(What .+):$", _docstring(HERE / "__init__.py"), flags=re.MULTILINE)[1:]
    named = [re.findall(r"python -m benchmarks\.(\w+)", part) for part in parts[1::2]]
    return {kind: list(dict.fromkeys(names)) for kind, names in zip(parts[::2], named, strict=True)}


def _docstring(file: Path) -> str:
    """Read, not imported: frameworks take seconds."""
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


if __name__ == "__main__":
    raise SystemExit(main())
