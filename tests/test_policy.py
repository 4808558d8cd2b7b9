"""Which samples are pruned: the policies' scores and what they refuse."""

from dataclasses import FrozenInstanceError
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import DroppingCount, PrunedataError, Random
from prunedata.policy import describe

VISITS = st.integers(0, 255).flatmap(lambda v: st.tuples(st.integers(0, v), st.just(v)))


def scores(policy, pairs, kind=np.uint8):
    hits, visits = (np.array(values, dtype=kind) for values in zip(*pairs, strict=True))
    return policy.scores(np.arange(len(pairs), dtype=np.uint8)[::-1], hits, visits)


@given(st.lists(VISITS, min_size=1, max_size=40))
def test_rank_run_orders_as_the_exact_fractions_do(pairs):
    got = [int(score) for score in scores(DroppingCount(rank="run"), pairs)]
    exact = [Fraction(hits, max(1, visits)) for hits, visits in pairs]
    for a, x in zip(got, exact, strict=True):
        for b, y in zip(got, exact, strict=True):
            assert (a < b, a == b) == (x < y, x == y)


def test_rank_run_tells_all_fractions_of_255_visits_apart():
    pairs = [(h, v) for v in range(1, 256) for h in range(v + 1)]
    got = scores(DroppingCount(rank="run"), pairs)
    exact = np.array([Fraction(h, v) for h, v in pairs])
    order = np.argsort(exact, kind="stable")
    assert ((np.diff(exact[order]) > 0) == (np.diff(got[order].astype(np.int64)) > 0)).all()
    assert got.dtype == np.uint16


@given(st.lists(st.tuples(st.integers(0, 65535), st.integers(0, 65535)), min_size=2, max_size=30))
def test_rank_run_of_many_visits_never_turns_the_order_around(pairs):
    pairs = [(min(pair), max(pair)) for pair in pairs]
    got = scores(DroppingCount(rank="run"), pairs, np.uint16).tolist()
    exact = [Fraction(h, max(1, v)) for h, v in pairs]
    order = sorted(range(len(pairs)), key=exact.__getitem__)
    assert sorted(got) == [got[i] for i in order]


def test_the_window_ranks_by_counts_and_random_by_nothing():
    pairs = [(1, 2), (5, 5), (0, 9)]
    assert scores(DroppingCount(), pairs).tolist() == [2, 1, 0]
    assert len(set(scores(Random(), pairs).tolist())) == 1
    assert scores(Random(), pairs).shape == (3,)


@pytest.mark.parametrize("tolerance", [-0.1, np.nan, np.inf, -np.inf, None, "0.5", True, [1.0]])
def test_a_tolerance_that_makes_no_sense_is_refused(tolerance):
    with pytest.raises(PrunedataError, match=r"Expected .*tolerance.* Got"):
        DroppingCount(tolerance=tolerance)


@pytest.mark.parametrize("rank", ["epoch", "", None, 3, "Window"])
def test_an_unknown_rank_is_refused(rank):
    with pytest.raises(PrunedataError, match=r"Expected rank 'window' or 'run'. Got"):
        DroppingCount(rank=rank)


def test_policies_are_frozen_values_that_say_what_they_are():
    assert DroppingCount() == DroppingCount(tolerance=0.0, rank="window")
    assert len({DroppingCount(), DroppingCount(0.0), DroppingCount(0.5), Random(), Random()}) == 3
    with pytest.raises(FrozenInstanceError):
        DroppingCount().tolerance = 1.0
    assert describe(DroppingCount(0.5, "run")) == {"name": "DroppingCount", "tolerance": 0.5, "rank": "run"}
    assert describe(Random()) == {"name": "Random"}
    assert (Random().tolerance, Random().needs_losses, DroppingCount().needs_losses) == (0.0, False, True)


@pytest.mark.parametrize("tolerance", [1, np.float32(0.5), np.int64(2)])
def test_what_is_recorded_of_a_policy_is_plain(tolerance):
    policy = DroppingCount(tolerance)
    assert type(describe(policy)["tolerance"]) is float
    assert policy == DroppingCount(float(tolerance))
