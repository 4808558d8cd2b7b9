"""How many samples a top is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata.errors import PrunedataError
from prunedata.findings.top import count_top


@given(st.integers(1, 1000), st.integers(1, 2000))
def test_a_number_is_itself_up_to_all(samples, top):
    assert count_top(top, samples) == min(top, samples)


@given(st.integers(1, 1000), st.integers(1, 99))
def test_a_fraction_is_that_of_the_decimal_rounded_down_and_at_least_one(samples, percent):
    assert count_top(percent / 100, samples) == max(1, samples * percent // 100)


@pytest.mark.parametrize("top", [0, -1, 0.0, 1.0, -0.5, 2.5, float("nan"), True, "3", None])
def test_all_else_is_refused(top):
    with pytest.raises(
        PrunedataError, match=r"Expected top to be a number from 1, or a fraction between 0 and 1\. Got"
    ):
        count_top(top, 10)
