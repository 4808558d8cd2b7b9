"""The browser that tests of pages open, and why they skip where there is none."""

import shutil
from importlib.util import find_spec

import pytest

__all__ = ["BROWSER", "in_a_browser", "launched"]

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

in_a_browser = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome is on the path"),
    pytest.mark.skipif(find_spec("playwright") is None, reason="playwright is not installed"),
]


def launched(playwright):
    """Chromium without a window. CI runs as root, where its own sandbox does not."""
    return playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
