"""Marks of tests of several rooms."""

import pytest

__all__ = ["WORKERS"]

WORKERS = pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
"""Without workers, and slow with two of them: for rules that a loader with workers keeps as one without.

Where workers do something of their own, as with streams, seeds and positions, quick tests have them too.
"""
