"""The k-th highest without a copy: what a sort gives, of any dtype, and in little memory."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prunedata.policies import keep_mask, kth
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


@pytest.mark.parametrize("copied", [0, 1, 4])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind[-1] in "248"])
def test_scores_that_begin_alike_are_told_apart_by_what_follows(kind, copied):
    """Of both signs, from few words, those beside the sign's bit among them."""
    few = np.array([0, 1, 0x3F80, 0x7000, 0x8000, 0x8001, 0xBF80, 0xF000], dtype=np.uint16)
    words = np.dtype(kind).itemsize // 2
    choose = np.random.default_rng(words)
    chosen = np.stack([choose.choice(few[place % 2 :: 2] if place else few, 16) for place in range(words)], axis=1)
    scores = np.ascontiguousarray(chosen[:, ::-1]).astype("<u2").view(np.dtype(kind).newbyteorder("<"))[:, 0]
    scores = np.concatenate([scores, scores[:4]]).astype(kind)
    found = [kth_highest(scores, k, copy_up_to=copied) for k in range(1, scores.size + 1)]
    assert found == np.sort(scores)[::-1].tolist()


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.int64])
def test_of_more_than_a_million_only_few_are_copied(kind):
    span = np.iinfo(kind)
    scores = np.random.default_rng(0).integers(span.min, span.max, 1 << 21, dtype=kind, endpoint=True)
    tracemalloc.start()
    kth_highest(scores, 1 << 20)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4_000_000


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
