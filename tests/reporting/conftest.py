"""The browser of the tests that look at pages."""

import pytest

from tests.reporting.browser import launched


@pytest.fixture(scope="session")
def browser():
    """One for all of them."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = launched(playwright)
        yield opened
        opened.close()
