"""The picture of the folders in docs/extend/design.md, from the files: ``python docs/made/tree.py --write``."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "extend" / "design.md"
BEGIN, END = "<!-- tree: python docs/made/tree.py --write -->\n", "<!-- end of the tree -->\n"
TOP = ("prunedata", "adapters", "benchmarks", "tests")
WIDTH = 120


def first_line(path: Path) -> str:
    """The first line of a module's docstring, without its full stop."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].rstrip(".")


def modules(folder: Path) -> list[Path]:
    """A folder's modules but for its ``__init__``, and its subfolders that are packages."""
    found = [path for path in sorted(folder.iterdir()) if not path.is_symlink()]
    files = [path for path in found if path.suffix == ".py" and path.name != "__init__.py"]
    return files + [path for path in found if path.is_dir() and any(path.glob("*.py"))]


def lines(folder: Path, depth: int = 0) -> Iterator[str]:
    """A line for a folder and one for each module in it; of tests the folders only."""
    init = folder / "__init__.py"
    yield _line(f"{folder.name}/", first_line(init) if init.exists() else "", depth)
    for path in modules(folder):
        if path.is_dir():
            yield from lines(path, depth + 1)
        elif folder.relative_to(ROOT).parts[0] != "tests":
            yield _line(path.name, first_line(path), depth + 1)


def _line(name: str, says: str, depth: int) -> str:
    line = f"{'  ' * depth}{name:<{30 - 2 * depth}}{says}".rstrip()
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3].rstrip()}..."


def tree() -> str:
    """The picture as a block of Markdown."""
    drawn = [line for top in TOP for line in lines(ROOT / top)]
    return "\n".join(["```", *drawn, "```", ""])


def page() -> str:
    """The page with the picture as it is now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return before + BEGIN + tree() + END + rest.partition(END)[2]


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(tree())
