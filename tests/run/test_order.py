"""The order of an epoch: a permutation, of which pruning takes samples away and nothing else."""

import itertools
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prunedata.errors import PrunedataError
from prunedata.run import order
from prunedata.run.order import cut_batches, epoch_order
from tests.common.strategies import SEEDS

MASKS = hnp.arrays(np.bool_, st.integers(0, 300))
INTEGERS = SEEDS | st.integers(-5, 5) | st.integers(2**63, 2**64 - 1)
# (together, neighbours, cached): the module's own, by which a small epoch is one permutation, and smaller ones.
OWN = (order.TOGETHER, order.NEIGHBOURS, order.CACHED)
LIMITS = st.sampled_from([OWN, (64, 4, 64), (64, 4, 9), (16, 16, 5), (8, 1, 100), (32, 8, 1), (1000, 10, 50)])


def drawn(keep, limits=OWN, **how):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in zip(("TOGETHER", "NEIGHBOURS", "CACHED"), limits, strict=True):
            patch.setattr(order, name, value)
        return list(epoch_order(keep, **how))


def ids_of(pieces):
    return [int(x) for piece in pieces for x in piece]


@given(MASKS, LIMITS, INTEGERS, INTEGERS, st.booleans())
def test_an_order_is_a_permutation_of_the_kept_and_part_of_the_full_one(keep, limits, seed, epoch, shuffle):
    how = {"seed": seed, "epoch": epoch, "shuffle": shuffle}
    before = keep.copy()
    pieces = drawn(keep, limits, **how)
    ids = ids_of(pieces)
    assert sorted(ids) == np.flatnonzero(keep).tolist()
    full = ids_of(drawn(np.ones_like(keep), limits, **how))
    assert ids == [x for x in full if keep[x]]
    assert ids == ids_of(drawn(keep, limits, **how))
    assert all(piece.dtype.kind in "iu" and piece.ndim == 1 and piece.size <= limits[0] for piece in pieces)
    assert shuffle or ids == sorted(ids)
    assert np.array_equal(keep, before)


@given(st.integers(40, 300), LIMITS, SEEDS, st.integers(0, 1000))
def test_orders_differ_by_epoch_and_by_seed(samples, limits, seed, epoch):
    keep = np.ones(samples, dtype=np.bool_)
    orders = [
        ids_of(drawn(keep, limits, seed=s, epoch=e))
        for s, e in [(seed, epoch), (seed + 1, epoch), (seed, epoch + 1), (epoch, seed + 2000)]
    ]
    assert len({tuple(ids) for ids in orders}) == 4
    assert tuple(range(samples)) not in orders


@pytest.mark.parametrize("cached", [order.CACHED, 2, 1])
def test_every_permutation_is_as_likely(cached, monkeypatch):
    monkeypatch.setattr(order, "CACHED", cached)
    keep, often = np.ones(4, dtype=np.bool_), dict.fromkeys(itertools.permutations(range(4)), 0)
    for seed in range(4800):
        often[tuple(ids_of(epoch_order(keep, seed=seed, epoch=0)))] += 1
    assert sum((n - 200) ** 2 / 200 for n in often.values()) < 49.7  # 0.999 quantile with 23 degrees of freedom


def test_beyond_a_window_blocks_are_permuted_and_mixed():
    samples, limits = 4000, (400, 10, 400)
    keep = np.ones(samples, dtype=np.bool_)
    firsts, apart = np.zeros(10), []
    for seed in range(300):
        pieces = drawn(keep, limits, seed=seed, epoch=0)
        assert [piece.size for piece in pieces] == [400] * 10
        place = np.empty(samples, dtype=np.int64)
        place[ids_of(pieces)] = np.arange(samples)
        firsts[place[0] // 400] += 1
        apart.append(np.abs(np.diff(place.reshape(-1, 10), axis=1)).mean())
        blocks = place.reshape(-1, 10) // 400
        assert (blocks == blocks[:, :1]).all()  # a block stays in its window
    # Neighbours within a window of 400 lie 133 places apart on average, not one.
    assert abs(np.mean(apart) - 400 / 3) < 2
    assert ((firsts - 30) ** 2 / 30).sum() < 27.9  # 0.999 quantile with 9 degrees of freedom


def test_a_run_walks_tomorrow_as_it_walked_today():
    ids = ids_of(epoch_order(np.ones(12, dtype=np.bool_), seed=0, epoch=0))
    assert ids == [7, 5, 9, 1, 4, 10, 0, 8, 6, 2, 11, 3], "changed orders break the resuming of runs that exist"


@pytest.mark.parametrize(
    ("samples", "digest"),
    [(2**18, 1185231648), (2**18 + 1, 2313915115), (2**21, 2402703192), (2**21 + 300, 1788309384)],
    ids=["shuffled at once", "in two buckets", "a whole window", "beyond a window"],
)
def test_so_does_a_long_one(samples, digest):
    """Window, blocks and buckets are part of the order: a run of millions that goes on needs the same."""
    found = 0
    for ids in epoch_order(np.ones(samples, dtype=np.bool_), seed=3, epoch=5):
        found = zlib.crc32(ids.astype("<i8").tobytes(), found)
    assert found == digest


@given(SEEDS, st.integers(0, 1000))
def test_seed_and_epoch_are_taken_as_words_of_64_bits(seed, epoch):
    keep = np.ones(40, dtype=np.bool_)
    order = ids_of(epoch_order(keep, seed=seed, epoch=epoch))
    assert order == ids_of(epoch_order(keep, seed=seed - 2**64, epoch=epoch))
    assert order == ids_of(epoch_order(keep, seed=seed, epoch=epoch - 2**64))


PIECES = st.lists(hnp.arrays(np.uint32, st.integers(0, 12)), max_size=8)


@given(PIECES, st.integers(1, 30), st.booleans())
def test_batches_are_slices_of_the_whole(pieces, size, drop_last):
    whole = [x for piece in pieces for x in piece.tolist()]
    expected = [whole[first : first + size] for first in range(0, len(whole), size)]
    if drop_last and expected and len(expected[-1]) < size:
        expected.pop()
    cut = list(cut_batches(iter(pieces), size, drop_last=drop_last))
    assert [batch.tolist() for batch in cut] == expected
    assert all(batch.dtype == np.uint32 for batch in cut)


def test_batches_come_before_later_pieces_are_drawn():
    def pieces():
        yield np.arange(5)
        raise RuntimeError("drawn too early")

    assert [batch.tolist() for batch in cut_batches([np.arange(5)], 2)] == [[0, 1], [2, 3], [4]]
    batches = cut_batches(pieces(), 2)
    assert [next(batches).tolist(), next(batches).tolist()] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("size", [0, -1, 1.5, True, None, "8"])
def test_a_batch_size_that_makes_no_sense_is_refused(size):
    with pytest.raises(PrunedataError, match=r"Expected batch_size.*Got"):
        next(cut_batches([np.arange(5)], size))
