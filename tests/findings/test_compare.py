"""Several runs beside each other: how far two agree, and what all of them suspect of rows that they share."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import rankdata, spearmanr

from prunedata import Pruner
from prunedata.errors import PrunedataError
from prunedata.findings.compare import (
    average_ranks,
    compare,
    joined_table,
    membership,
    overlap,
    rank_correlation,
    shared_rows,
)
from prunedata.findings.searched import state_of
from prunedata.keys import hash_keys, key_text

# How far two runs agree: against sets and scikit-learn's kin, and what chance gives.


SCORES = st.lists(st.integers(0, 6), min_size=2, max_size=40)
TWO = st.integers(2, 40).flatmap(lambda n: st.tuples(*[st.lists(st.integers(0, 9), min_size=n, max_size=n)] * 2))


def run(hits, visits=10):
    hits = np.array(hits)
    return hits / visits, np.full(hits.shape, visits)


@given(SCORES, st.data())
def test_membership_is_the_chance_to_be_drawn_when_ties_go_by_lot(scores, data):
    scores, top = np.array(scores), data.draw(st.integers(1, len(scores)))
    got = membership(scores, top)
    assert got.sum() == pytest.approx(top)
    assert ((got >= 0) & (got <= 1)).all()
    for score, part in zip(scores, got, strict=True):
        above, ties = (scores > score).sum(), (scores == score).sum()
        assert part == pytest.approx(min(1, max(0, (top - above) / ties)))


@given(st.permutations(range(12)), st.permutations(range(12)), st.integers(1, 12))
def test_without_ties_the_overlap_is_that_of_sets(a, b, top):
    got = compare(run(a, 12), run(b, 12), top)
    tops = [{i for i, score in enumerate(scores) if score >= 12 - top} for scores in (a, b)]
    assert got.jaccard == pytest.approx(len(tops[0] & tops[1]) / len(tops[0] | tops[1]))
    expected = top * top / 12
    assert got.jaccard_by_chance == pytest.approx(expected / (2 * top - expected))


@given(TWO, st.data())
def test_bounds_symmetry_and_permutations(two, data):
    a, b = two
    top = data.draw(st.integers(1, len(a)) | st.sampled_from([0.1, 0.5, 0.99]))
    got, other = compare(run(a), run(b), top), compare(run(b), run(a), top)
    assert 0 <= got.jaccard <= 1
    assert 0 < got.jaccard_by_chance <= 1
    assert got.rank_correlation is None or -1 <= got.rank_correlation <= 1
    order = data.draw(st.permutations(range(len(a))))
    moved = compare(run(np.array(a)[order]), run(np.array(b)[order]), top)
    for again in (other, moved):
        assert (again.top, again.compared) == (got.top, got.compared)
        assert (again.jaccard, again.jaccard_by_chance) == pytest.approx((got.jaccard, got.jaccard_by_chance))
        assert (again.rank_correlation is None) == (got.rank_correlation is None)
        if got.rank_correlation is not None:
            assert again.rank_correlation == pytest.approx(got.rank_correlation)


@given(SCORES, st.data())
def test_a_run_agrees_with_itself(scores, data):
    got = compare(run(scores), run(scores), data.draw(st.integers(1, len(scores))))
    assert got.jaccard == 1
    assert got.rank_correlation == (None if len(set(scores)) == 1 else pytest.approx(1))


def test_chance_is_what_runs_without_anything_in_common_give():
    random = np.random.default_rng(3)
    a, b = (membership(random.integers(0, 5, 400), top) for top in (60, 90))
    found = [overlap(random.permutation(a), b)[0] for _ in range(300)]
    assert np.mean(found) == pytest.approx(overlap(a, b)[1], rel=0.02)
    assert overlap(a, b)[1] > overlap(np.float64(a == 1), b)[1]


def test_ties_alone_are_no_agreement():
    """Were ties decided by index, two runs of which nothing is known would agree more than by chance."""
    got = compare(run([5] * 50), run([5] * 50), 0.2)
    assert got.jaccard == got.jaccard_by_chance == 1
    assert got.rank_correlation is None


@given(TWO)
def test_ranks_and_their_correlation_are_those_of_scipy(two):
    a, b = (np.array(one) for one in two)
    assert average_ranks(a).tolist() == rankdata(a).tolist()
    assume(len(set(a.tolist())) > 1 and len(set(b.tolist())) > 1)
    assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)


def test_only_samples_that_both_runs_know_are_compared():
    visits = np.array([10, 10, 0, 10])
    got = compare((np.array([0.1, 0.9, 1.0, 0.5]), visits), (np.array([0.2, 0.8, 0.0, 0.4]), visits[::-1].copy()), 1)
    assert (got.samples, got.compared, got.top) == (4, 2, 1)


@pytest.mark.parametrize(
    ("other", "top", "message"),
    [
        (([0.1] * 4, [9] * 4), 0.5, "one with 3 samples and one with 4"),
        (([0.1] * 3, [0] * 3), 0.5, "visited in both runs"),
        (([0.1] * 3, [9] * 3), 0, "top to be a number from 1, or a fraction between 0 and 1. Got 0"),
        (([0.1] * 3, [9] * 3), 1.0, "Got 1.0"),
    ],
)
def test_what_cannot_be_compared_is_refused(other, top, message):
    first = np.array([0.1, 0.2, 0.3]), np.array([9, 9, 9])
    with pytest.raises(PrunedataError, match=message):
        compare(first, tuple(np.array(one) for one in other), top)


# Runs on rows that they share: joined by keys, or by ids; one list of what all of them suspect.


ROWS = 30
SPLITS = st.lists(st.sets(st.integers(0, ROWS - 1), min_size=3), min_size=1, max_size=4)


def watched(rows, *, keys=True, wrong=(3, 8), epochs=2, **options):
    """A run over some rows, of which some have high losses."""
    rows = list(rows)
    run = Pruner(
        len(rows), epochs=4, leave_out="nothing", keys=[f"row {row}" for row in rows] if keys else None, **options
    )
    for _ in range(epochs):
        epoch = run.begin_epoch()
        for ids in epoch.batches(10):
            run.observe(np.array([5.0 + rows[i] if rows[i] in wrong else rows[i] / 99 for i in ids]), ids)
        run.end_epoch()
    return state_of(run)


@given(SPLITS)
def test_each_row_is_there_once_and_is_found_in_each_run(splits):
    runs = [watched(sorted(split), epochs=0) for split in splits]
    for run, split in zip(runs, splits, strict=True):
        run.arrays["keys"] = hash_keys([f"row {row}" for row in sorted(split)])
    places = shared_rows(runs)
    assert places.shape == (len(splits), len(set().union(*splits)))
    for at in range(places.shape[1]):
        found = {sorted(split)[place] for split, place in zip(splits, places[:, at], strict=True) if place >= 0}
        (row,) = found
        assert [row in split for split in splits] == (places[:, at] >= 0).tolist()


@given(SPLITS)
def test_a_row_is_judged_by_the_mean_of_its_ranks_in_the_runs_that_trained_on_it(splits):
    runs = [watched(sorted(split)) for split in splits]
    table = joined_table(runs, ROWS)
    names = {key_text(int(key)): row for row, key in enumerate(hash_keys([f"row {row}" for row in range(ROWS)]))}
    assert sorted(names[key] for key in table["key"]) == sorted(set().union(*splits))
    for at, key in enumerate(table["key"].tolist()):
        row = names[key]
        ranks = []
        for run, split in zip(runs, splits, strict=True):
            if row in split:
                scores = run.mean_excess
                mine = scores[sorted(split).index(row)]
                ranks.append(((scores < mine).sum() + (scores == mine).sum() / 2) / len(split))
        assert table["score"][at] == pytest.approx(np.mean(ranks))
        assert table["runs"][at] == len(ranks)
        first = next(number for number, split in enumerate(splits) if row in split)
        assert (table["run"][at], table["id"][at]) == (first, sorted(splits[first]).index(row))
    assert (np.diff(table["score"]) <= 0).all()


def test_without_keys_equal_ids_are_one_row():
    table = joined_table([watched(range(ROWS), keys=False), watched(range(ROWS), seed=1, keys=True)], 2)
    assert "key" not in table
    assert sorted(table["id"].tolist()) == [3, 8]
    with pytest.raises(PrunedataError, match="Got one of 30 and one of 20, and not all of them have keys"):
        joined_table([watched(range(ROWS), keys=False), watched(range(20))], 2)


def test_what_a_run_left_out_for_good_or_held_out_it_does_not_judge():
    runs = [watched(range(ROWS), without=[3]), watched(range(ROWS))]
    table = joined_table(runs, ROWS)
    at = table["id"].tolist().index(3)
    assert table["runs"][at] == 1
    with pytest.raises(PrunedataError, match="Got none in any of the runs"):
        joined_table([watched(range(ROWS), epochs=0)], 2)
