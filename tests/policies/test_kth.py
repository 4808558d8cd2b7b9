"""The k-th highest without a copy: what a sort gives, of any dtype, and in little memory."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prunedata import keep_mask
from prunedata.policies import kth
from prunedata.policies.kth import kth_highest

KINDS = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", ">f4")


@st.composite
def some_scores(draw):
    """Scores of which some tie, or begin with the same bits."""
    kind = np.dtype(draw(st.sampled_from(KINDS)))
    any_value = hnp.from_dtype(kind, allow_nan=False) if kind.kind == "f" else hnp.from_dtype(kind)
    few = draw(st.lists(any_value, min_size=1, max_size=4))
    return np.array(draw(st.lists(st.sampled_from(few) | any_value, min_size=1, max_size=40)), dtype=kind)


@given(some_scores(), st.integers(0, 10), st.sampled_from([3, 1 << 18]), st.data())
def test_it_is_that_of_a_sort(scores, copied, part, data):
    k = data.draw(st.integers(1, scores.size))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kth, "PART", part)
        found = kth_highest(scores, k, copy_up_to=copied)
    assert found == np.sort(scores)[scores.size - k]


def test_what_is_no_block_of_memory_is_copied():
    scores = np.arange(100, dtype=np.float32)[::2]
    assert kth_highest(scores, 3, copy_up_to=0) == 94


@pytest.mark.parametrize("tied", [False, True])
def test_many_floats_are_selected_without_a_copy(tied):
    samples = 1 << 22
    scores = np.random.default_rng(0).random(samples, dtype=np.float32)
    if tied:
        scores[:] = 0.5
    tracemalloc.start()
    keep = keep_mask(scores, samples // 4, seed=0, epoch=1)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.count_nonzero(keep) == samples - samples // 4
    assert most < keep.nbytes + scores.nbytes // 2
