"""Marks and settings of tests of several rooms."""

import pytest
from hypothesis import settings

__all__ = ["FEWER", "WORKERS"]

WORKERS = pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
"""Without workers, and slow with two of them: for rules that a loader with workers keeps as one without.

Where workers do something of their own, as with streams, seeds and positions, quick tests have them too.
"""
FEWER = settings(max_examples=max(1, settings.default.max_examples // 3))
"""A third of the examples: for properties of runs and files, each example of which takes long."""
