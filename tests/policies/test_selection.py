"""keep_mask against a plain sort, its hash against the published one, and the k-th highest without a copy."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prunedata.errors import PrunedataError
from prunedata.policies import keep_mask, selection
from prunedata.policies.selection import kth_highest
from tests.common.strategies import SEEDS, plain_hash, plain_keep

# keep_mask against a plain sort, and its hash against the published one.


DTYPES = (np.uint8, np.uint16, np.uint32, np.int8, np.int64, np.float32, np.float64, np.bool_)
EPOCHS = st.integers(0, 10_000)


def set_chunk(patch, size):
    patch.setattr(selection, "CHUNK", size)
    patch.setattr(selection, "_OFFSETS", selection._OFFSETS[:size])


@st.composite
def scores(draw, max_size=80):
    """Scores of any dtype; most of them tie."""
    kind = np.dtype(draw(st.sampled_from(DTYPES)))
    if kind.kind == "b":
        values = st.booleans()
    elif kind.kind == "f":
        values = st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 0.25, np.inf])
    else:
        span = np.iinfo(kind)
        values = st.sampled_from([span.min, 0, 1, 2, span.max])
    if kind.kind != "b" and draw(st.booleans()):
        values = hnp.from_dtype(kind, allow_nan=False) if kind.kind == "f" else hnp.from_dtype(kind)
    return draw(hnp.arrays(kind, st.integers(0, max_size), elements=values))


@given(scores(), SEEDS | st.integers(-9, -1), EPOCHS, st.sampled_from([4, 16, 65536]), st.data())
def test_exactly_the_highest_are_pruned_and_ties_go_by_hash(counts, seed, epoch, chunk, data):
    pruned = data.draw(st.integers(0, counts.size))
    before = counts.copy()
    with pytest.MonkeyPatch.context() as patch:
        set_chunk(patch, chunk)
        keep = keep_mask(counts, pruned, seed=seed, epoch=epoch)
    assert keep.dtype == np.bool_
    assert np.count_nonzero(~keep) == pruned
    if 0 < pruned < counts.size:
        assert counts[~keep].min() >= counts[keep].max()
    assert keep.tolist() == plain_keep(counts.tolist(), pruned, seed, epoch)
    assert np.array_equal(counts, before)


@given(SEEDS, st.integers(0, 10), st.integers(100, 200))
def test_samples_that_tie_are_counted_in_every_chunk(seed, few, pruned):
    """Few of them in the first chunk, and all of the second: a count of one chunk alone is nearly right."""
    counts = np.zeros(400, dtype=np.uint8)
    counts[:few], counts[200:] = 1, 1
    with pytest.MonkeyPatch.context() as patch:
        set_chunk(patch, 200)
        keep = keep_mask(counts, pruned, seed=seed, epoch=1)
    assert keep.tolist() == plain_keep(counts.tolist(), pruned, seed, 1)


def test_broadcast_strided_and_listed_counts_are_taken():
    plain = keep_mask(np.zeros(1000, dtype=np.uint8), 300, seed=1, epoch=2)
    assert np.array_equal(plain, keep_mask(np.broadcast_to(np.uint8(0), 1000), 300, seed=1, epoch=2))
    assert np.array_equal(plain, keep_mask(np.zeros((1000, 3), dtype=np.uint8)[:, 1], 300, seed=1, epoch=2))
    assert np.array_equal(plain, keep_mask([0] * 1000, 300, seed=1, epoch=2))
    assert np.array_equal(plain, keep_mask(np.zeros(1000), np.int64(300), seed=np.uint8(1), epoch=np.int32(2)))


@pytest.mark.parametrize("samples", [5_000, 70_000])
@pytest.mark.parametrize("unlucky", ["all hashes high", "all hashes low", "none near the middle"])
def test_an_unlucky_stream_widens_the_band_and_stays_exact(samples, unlucky, monkeypatch):
    """Where the tied samples' hashes are far from uniform, the band around the expected quantile misses."""
    seed, epoch = 5, 9
    rank = np.argsort(np.argsort([plain_hash(x, seed, epoch) for x in range(samples)])) / samples
    tied = {
        "all hashes high": rank > 0.6,
        "all hashes low": rank < 0.4,
        "none near the middle": (rank < 0.2) | (rank > 0.9),
    }[unlucky]
    counts = np.where(tied, 3, 1).astype(np.uint8)
    counts[:50] = 200
    rounds = []
    monkeypatch.setattr(
        selection, "_hashes", lambda *given, real=selection._hashes: rounds.append(given) or real(*given)
    )
    pruned = 50 + int((counts == 3).sum()) // 2
    keep = keep_mask(counts, pruned, seed=seed, epoch=epoch)
    chunks = -(-samples // selection.CHUNK)
    assert len(rounds) == 2 * chunks, "the band was not widened: this test tests nothing"
    assert keep.tolist() == plain_keep(counts.tolist(), pruned, seed, epoch)
    rounds.clear()
    keep_mask(np.zeros(samples), pruned, seed=seed, epoch=epoch)
    assert len(rounds) == chunks  # a uniform stream needs no second round


@pytest.mark.parametrize("end", ["bottom", "top"])
@pytest.mark.parametrize("pruned", [1, 2, 500, 998, 999])
def test_hashes_at_the_very_ends_stay_exact(end, pruned, monkeypatch):
    def hashes(first, offsets, stream):
        ids = (offsets + first).astype(np.uint64)
        return ids if end == "bottom" else np.uint64(2**64 - 1) - ids

    monkeypatch.setattr(selection, "_hashes", hashes)
    keep = keep_mask(np.zeros(1000, dtype=np.uint8), pruned, seed=0, epoch=0)
    expected = np.arange(1000) >= pruned
    assert np.array_equal(keep, expected if end == "bottom" else expected[::-1])


def test_all_that_tie_are_pruned_up_to_the_highest_hash(monkeypatch):
    monkeypatch.setattr(
        selection, "_hashes", lambda first, offsets, stream: np.uint64(2**64 - 1) - offsets.astype(np.uint64)
    )
    counts = np.ones(1000, dtype=np.uint8)
    counts[-1] = 0
    assert np.flatnonzero(keep_mask(counts, 999, seed=0, epoch=0)).tolist() == [999]


def test_beside_the_mask_it_needs_little_memory():
    counts = (np.arange(1 << 18) % 8 == 0).astype(np.uint8)
    tracemalloc.start()
    keep = keep_mask(counts, counts.size // 2, seed=0, epoch=1)
    needed = tracemalloc.get_traced_memory()[1] - keep.nbytes
    tracemalloc.stop()
    assert needed < 3_000_000


def test_the_hash_is_splitmix64():
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]  # its first outputs from state 0
    assert selection._hashes(0, np.arange(3), 0).tolist() == published
    full = selection._hashes(selection.CHUNK, np.arange(selection.CHUNK), 77)
    part = selection._hashes(selection.CHUNK, np.arange(selection.CHUNK - 1), 77)
    assert np.array_equal(full[:-1], part)
    assert len(set(full.tolist())) == selection.CHUNK


def test_a_run_selects_tomorrow_what_it_selected_today():
    pruned = np.flatnonzero(~keep_mask(np.zeros(100), 8, seed=0, epoch=0)).tolist()
    assert pruned == [2, 32, 33, 42, 43, 53, 94, 95], "changed selections break the resuming of runs that exist"


def pruned_often(keeps):
    """Chi-squared of how often each sample was pruned, for draws without replacement; df = samples - 1."""
    table = ~np.array(keeps)
    draws, samples = table.shape
    share = table.mean()
    spread = draws * share * (1 - share) * samples / (samples - 1)
    return float(((table.sum(axis=0) - draws * share) ** 2).sum() / spread)


# Quantiles 0.001 and 0.999 of chi-squared with 19 degrees of freedom.
LOW, HIGH = 5.407, 43.820


@pytest.mark.parametrize("pruned", [1, 10])
def test_ties_are_fair_over_seeds_and_over_epochs(pruned):
    zeros = np.zeros(20, dtype=np.uint8)
    assert LOW < pruned_often([keep_mask(zeros, pruned, seed=s, epoch=4) for s in range(3000)]) < HIGH
    assert LOW < pruned_often([keep_mask(zeros, pruned, seed=4, epoch=e) for e in range(3000)]) < HIGH


def test_ties_are_decided_anew_in_every_epoch_and_by_every_seed():
    zeros = np.zeros(400, dtype=np.uint8)
    by_epoch = np.array([keep_mask(zeros, 100, seed=8, epoch=e) for e in range(200)])
    by_seed = np.array([keep_mask(zeros, 100, seed=s, epoch=8) for s in range(200)])
    for keeps in (by_epoch, by_seed):
        assert len({keep.tobytes() for keep in keeps}) == 200
        # Two independent choices of 100 of 400 share 25 +- 3.76 samples.
        shared = (~keeps[1:] & ~keeps[:-1]).sum(axis=1)
        assert abs(shared.mean() - 25) < 4 * 3.76 / np.sqrt(199)
        assert shared.max() < 25 + 6 * 3.76
    # (seed, epoch) and (seed + 1, epoch - 1) are different too.
    assert not np.array_equal(keep_mask(zeros, 100, seed=1, epoch=2), keep_mask(zeros, 100, seed=2, epoch=1))


@pytest.mark.parametrize(
    ("counts", "pruned", "told"),
    [
        (np.zeros((2, 3)), 1, r"shape \(samples,\).*Got shape \(2, 3\)"),
        (np.array(["a"]), 1, "numeric dtype.*<U1"),
        (np.array([1j]), 1, "numeric dtype.*complex128"),
        (np.array([None, 1]), 1, "numeric dtype.*object"),
        (np.array([1.0, np.nan, np.nan]), 1, "without NaN. Got 2 NaN"),
        (np.zeros(4), -1, "from 0 to the number of samples, 4. Got -1"),
        (np.zeros(4), 5, "from 0 to the number of samples, 4. Got 5"),
        (np.zeros(0), 1, "from 0 to the number of samples, 0. Got 1"),
    ],
)
def test_bad_input_is_refused(counts, pruned, told):
    with pytest.raises(PrunedataError, match=told):
        keep_mask(counts, pruned, seed=0, epoch=0)


def test_a_fraction_is_no_number_of_samples():
    with pytest.raises(TypeError):
        keep_mask(np.zeros(4), 0.5, seed=0, epoch=0)


# The k-th highest without a copy: what a sort gives, of any dtype, and in little memory.


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
        patch.setattr(selection, "PART", part)
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
