"""Numbers as a reader takes them in at once."""

import math
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prunedata.reporting.wording import few, percent, plural, ticks

NUMBERS = st.floats(-1e12, 1e12, allow_nan=False)


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0"), (0.125, "12.5"), (1, "100"), (0.999, "99.9"), (0.9999, "100"), (0.0007, "0.07"), (0.00003, "0.003"),
     (1e-9, "below 0.001"), (9.58, "958"), (-0.054, "-5.4"), (12.5, "1,250")],
)  # fmt: skip
def test_percent(share, text):
    assert percent(share) == f"{text}\N{NO-BREAK SPACE}%"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (2.345678, "2.35"), (0.5, "0.5"), (1234.5, "1,234"), (20, "20"),
     (0.00012345, "0.000123"), (1e-9, "1e-09")],
)  # fmt: skip
def test_few(value, text):
    assert few(value) == text


def test_plural():
    assert [plural(number, "epoch") for number in (0, 1, 2000)] == ["0 epochs", "1 epoch", "2,000 epochs"]


@given(NUMBERS, NUMBERS, st.integers(2, 8))
@example(0.0, 5e-324, 2)
def test_ticks_rise_evenly_around_all_values(one, other, most):
    low, high = sorted((one, other))
    found = ticks(low, high, most)
    step = found[1] - found[0]
    assert found == sorted(set(found))
    assert found[0] <= low + 1e-6 * step
    assert found[-1] >= high - 1e-6 * step
    assert 2 <= len(found) <= 2 * most + 2
    assert all(math.isclose(b - a, step, rel_tol=1e-6) for a, b in pairwise(found))
