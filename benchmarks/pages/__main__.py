"""Rewrite the tables of docs/ that stand on recorded runs, and docs/evidence/study.md.

    python -m benchmarks.pages

A table follows a comment, as ``<!-- table: gains lenet cifar10 10000 -->``, and ends where its lines do. The comment
has the name of a table and what it is of.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.commands import add_results, program
from benchmarks.pages.page_tables import TABLES, study
from benchmarks.study.results import RESULTS

__all__ = ["PAGES", "fill", "main"]

Facts = dict[str, Any]
ROOT = Path(__file__).parents[2]
PAGES = ("docs/evidence/suspects.md", "docs/evidence/results.md", "docs/paper.md")
STUDY = "docs/evidence/study.md"
MARK = re.compile(r"(<!-- table: (.+?) -->\n\n)(?:\|.*\n)*")


def fill(page: str, results: Sequence[Facts]) -> str:
    """Return a page with its tables as the recorded runs have them."""

    def table(found: re.Match[str]) -> str:
        name, *words = found[2].split()
        if name not in TABLES:
            raise ValueError(f"Expected one of the tables {', '.join(TABLES)}. Got {name!r}.")
        return found[1] + TABLES[name](results, *words) + "\n"

    return MARK.sub(table, page)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with command-line `arguments`; return the exit status."""
    parser = program("benchmarks.pages", "Rewrite the pages' tables.")
    add_results(parser, RESULTS)
    given = parser.parse_args(arguments)
    results = given.results.read()
    if not results:
        parser.error(f"Expected results of benchmarks.study.train in {given.results}. Got none.")
    for name in PAGES:
        page = ROOT / name
        page.write_text(fill(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    (ROOT / STUDY).write_text(study(results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
