"""Runs of every kind, made once, and the browser of the tests that look at pages."""

import shutil
import warnings
from functools import cache

import pytest

from tests.reporting.reading import KINDS, launched


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """``made(kind)`` is the run of that kind, alive, and the path of its store. No test may change either."""

    @cache
    def make(kind):
        place = tmp_path_factory.mktemp(kind) / "run.zarr"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return KINDS[kind](place), place

    return make


@pytest.fixture
def stored(made, tmp_path):
    """``stored(kind, name)`` is a copy of its store, of another name."""

    def copy(kind, name="run.zarr"):
        return shutil.copytree(made(kind)[1], tmp_path / name)

    return copy


@pytest.fixture(scope="session")
def browser():
    """One for all of them."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = launched(playwright)
        yield opened
        opened.close()
