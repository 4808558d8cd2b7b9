"""The pages stay short: the first one, how-tos, and all prose together."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README_WORDS, FIRST_CODE, FIRST_ROWS = 900, 40, 6
ALL_WORDS, PAGE_WORDS = 36_000, 1_500
REFERENCES = (
    "api.md", "errors.md", "paper.md", "reliability.md", "evidence/", "extend/", "frameworks/", "tools/command-line.md",
)  # fmt: skip
"""Pages that are looked things up in; all others are read from top to bottom."""
MADE = re.compile(
    r"(?s)<!-- [^\n]*: python docs/made/\w+\.py --write -->\n.*?<!-- end of [^\n]* -->"
    r"|<!-- (?:table: faults|python -m benchmarks[^\n]*) -->.*?<!-- end(?: of table)? -->"
)
"""What a command wrote: folders, help, messages, tables with the lines under them."""
EVIDENCE = re.compile(r"<!-- (?:table: |python -m benchmarks|printed by python -m benchmarks)")

pytestmark = pytest.mark.docs


def words(text, *, code=True):
    """Words of a page outside tables and comments; of what a command made, none."""
    text = MADE.sub("", text)
    text = re.sub(r"(?s)<!--.*?-->", "", text)
    if not code:
        text = re.sub(r"(?ms)^```.*?^```$", "", text)
    return len(" ".join(line for line in text.splitlines() if not line.lstrip().startswith("|")).split())


def test_the_first_page_is_short_and_has_code_early():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.sub(r"(?s)<!--.*?-->", "", text)
    assert len(shown.split()) <= README_WORDS
    lines = text.splitlines()
    assert lines.index("```console") < FIRST_CODE
    first = next(at for at, line in enumerate(lines) if line.startswith("|"))
    rows = next(at for at, line in enumerate(lines[first:]) if not line.startswith("|"))
    assert rows - 2 <= FIRST_ROWS  # without the head and its line


def test_all_pages_together_are_short():
    counted = {path: words(path.read_text(encoding="utf-8")) for path in sorted(DOCS.rglob("*.md"))}
    assert sum(counted.values()) <= ALL_WORDS, {str(path.relative_to(DOCS)): number for path, number in counted.items()}


def test_a_page_that_is_read_through_is_short_and_has_no_tables_of_evidence():
    for path in sorted(DOCS.rglob("*.md")):
        name = path.relative_to(DOCS).as_posix()
        if not name.startswith(REFERENCES):
            text = path.read_text(encoding="utf-8")
            assert words(text, code=False) <= PAGE_WORDS, name
            assert not EVIDENCE.search(text), name


def test_words_are_counted_where_they_are_read():
    page = "One two.\n\n| a | b |\n\n```\nthree\n```\n<!-- four -->\n"
    assert words(page, code=False) == 2
    assert words(page) == 5  # with the marks of the fence
