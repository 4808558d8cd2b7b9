"""The table of what works with what: each cell is a test that exists, or a reason, and the page shows it."""

import ast
import functools

import pytest

from tests.common.programs import ROOT
from tests.docs.test_pages import load

pytestmark = pytest.mark.docs

MADE = load("made/features")
CELLS = [(name, feature) for name in MADE.TABLE for feature in MADE.FEATURES]


@functools.cache
def named_in(file):
    """The tests that pytest collects from a file, unless they are always skipped."""
    found = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    return {
        each.name
        for each in found
        if isinstance(each, ast.FunctionDef)
        and each.name.startswith("test_")
        and not any("mark.skip" in ast.unparse(mark) or "xfail" in ast.unparse(mark) for mark in each.decorator_list)
    }


@pytest.mark.parametrize(("name", "feature"), CELLS)
def test_each_cell_is_a_test_or_a_reason(name, feature):
    cell = MADE.TABLE[name][feature]
    assert cell.tests or (cell.says and not cell.says.startswith("yes"))
    for test in cell.tests:
        file, _, function = test.partition("::")
        assert function in named_in(MADE.TESTS + file), test


def test_each_refusal_is_a_test():
    for *_, test in MADE.REFUSED:
        file, _, function = test.partition("::")
        assert function in named_in(MADE.TESTS + file), test


def test_no_row_has_another_column():
    assert all(tuple(row) == MADE.FEATURES for row in MADE.TABLE.values())


def test_the_page_shows_the_table():
    assert MADE.PAGE.read_text(encoding="utf-8") == MADE.page(), "run: python docs/made/features.py --write"
