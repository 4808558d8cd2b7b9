"""Which samples are pruned: the policies' scores and weights, against plain loops."""

import math
from dataclasses import FrozenInstanceError
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata.policies import DroppingCount, EasyPruning, Known, LossRanked, Random
from prunedata.policies.protocol import describe
from prunedata.run.epoch import select
from tests.common.strategies import SEEDS, feeds, plain_keep, pruner, schedules

pytestmark = pytest.mark.filterwarnings("ignore::prunedata.errors.UnweighedWarning")  # nothing is trained here

VISITS = st.integers(0, 255).flatmap(lambda v: st.tuples(st.integers(0, v), st.just(v)))


def scores(policy, pairs, kind=np.uint8):
    hits, visits = (np.array(values, dtype=kind) for values in zip(*pairs, strict=True))
    return policy.scores(Known(np.arange(len(pairs), dtype=np.uint8)[::-1], hits, visits, {}, 1))


def test_rank_run_tells_all_fractions_of_255_visits_apart():
    pairs = [(h, v) for v in range(1, 256) for h in range(v + 1)]
    got = scores(DroppingCount(by="run"), pairs)
    exact = np.array([h / v for h, v in pairs])  # equal exactly where the fractions are
    order = np.argsort(exact, kind="stable")
    assert ((np.diff(exact[order]) > 0) == (np.diff(got[order].astype(np.int64)) > 0)).all()
    assert got.dtype == np.uint16


@given(st.lists(st.tuples(st.integers(0, 65535), st.integers(0, 65535)), min_size=2, max_size=30))
def test_rank_run_of_many_visits_never_turns_the_order_around(pairs):
    pairs = [(min(pair), max(pair)) for pair in pairs]
    got = scores(DroppingCount(by="run"), pairs, np.uint16).tolist()
    exact = [Fraction(h, max(1, v)) for h, v in pairs]
    order = sorted(range(len(pairs)), key=exact.__getitem__)
    assert sorted(got) == [got[i] for i in order]


def test_the_window_ranks_by_counts_and_random_by_nothing():
    pairs = [(1, 2), (5, 5), (0, 9)]
    assert scores(DroppingCount(), pairs).tolist() == [2, 1, 0]
    assert len(set(scores(Random(), pairs).tolist())) == 1
    assert scores(Random(), pairs).shape == (3,)


def test_policies_are_frozen_values_that_say_what_they_are():
    assert DroppingCount() == DroppingCount(tolerance=0.0, by="window")
    assert len({DroppingCount(), DroppingCount(0.0), DroppingCount(0.5), Random(), Random()}) == 3
    with pytest.raises(FrozenInstanceError):
        DroppingCount().tolerance = 1.0
    assert describe(DroppingCount(0.5, "run")) == {"name": "DroppingCount", "tolerance": 0.5, "by": "run"}
    assert describe(Random()) == {"name": "Random"}
    assert describe(LossRanked(0.75)) == {"name": "LossRanked", "ratio": 0.75}
    assert describe(EasyPruning()) == {"name": "EasyPruning", "by": "loss", "tolerance": 0.0}
    assert (Random().tolerance, Random().needs_losses) == (0.0, False)


# -- policies that keep losses

# No sum of these in float64 is rounded, so that a mean is the same however it is summed.
VALUES = st.one_of(st.sampled_from([0.0, 0.25, 1.0, -1.0]), st.integers(-64, 64).map(lambda n: n / 16), st.just(np.nan))


def known(losses, pruned):
    none = np.zeros(len(losses), dtype=np.uint8)
    return Known(none, none, none, {"loss": np.array(losses, dtype=np.float32)}, pruned)


def plain_group(losses, pruned, ratio):
    """Whom LossRanked prunes from: the samples below the mean, or as many of the lowest as the ratio wants."""
    seen = [loss for loss in losses if not math.isnan(loss)]
    if not seen:
        return set(range(len(losses)))
    mean = math.fsum(seen) / len(seen)
    group = {x for x, loss in enumerate(losses) if loss < mean}
    least = min(math.ceil(pruned / ratio), len(losses))
    if len(group) >= least:
        return group
    ranks = [math.inf if math.isnan(loss) else loss for loss in losses]
    return {x for x, loss in enumerate(ranks) if loss <= sorted(ranks)[least - 1]}


@given(st.lists(VALUES, min_size=2, max_size=40), st.sampled_from([0.1, 0.5, 0.75, 0.99]), SEEDS, st.data())
def test_loss_ranked_draws_from_the_low_losses_and_lets_the_rest_of_them_count_for_all(losses, ratio, seed, data):
    pruned = data.draw(st.integers(1, len(losses) - 1))
    group = plain_group(losses, pruned, ratio)
    keep, weights = select(LossRanked(ratio), known(losses, pruned), seed=seed, epoch=3)
    assert keep.tolist() == plain_keep([x in group for x in range(len(losses))], pruned, seed, 3)
    assert len(losses) - np.count_nonzero(keep) == pruned
    kept = [x for x in group if keep[x]]
    for x, weight in enumerate(weights.tolist()):
        expected = 0 if not keep[x] else len(group) / len(kept) if x in group else 1
        assert weight == pytest.approx(expected)
    assert weights.dtype == np.float32
    assert weights.sum(dtype=np.float64) == pytest.approx(len(losses))
    if len(group) < len(losses):
        assert weights.max() <= 1 / (1 - ratio) + 1e-4
        assert not any(math.isnan(losses[x]) for x in group)


def test_a_ratio_near_zero_lets_all_samples_into_the_group():
    keep, weights = select(LossRanked(5e-324), known([0.1, 0.2, 5.0, 6.0], 1), seed=0, epoch=1)
    assert weights[keep].tolist() == pytest.approx([4 / 3] * 3)


@given(st.lists(VALUES, min_size=2, max_size=40), SEEDS, st.data())
def test_easy_pruning_takes_the_lowest_losses(losses, seed, data):
    pruned = data.draw(st.integers(1, len(losses) - 1))
    keep, weights = select(EasyPruning(), known(losses, pruned), seed=seed, epoch=2)
    ranks = [-math.inf if math.isnan(loss) else -loss for loss in losses]
    assert (keep.tolist(), weights) == (plain_keep(ranks, pruned, seed, 2), None)


@pytest.mark.parametrize("by", ["window", "run"])
def test_easy_pruning_keeps_what_nobody_has_seen_beside_what_was_hit_as_often_as_can_be_counted(by):
    hits = np.array([0, 255], dtype=np.uint8)
    for seed in range(20):
        keep, _ = select(EasyPruning(by), Known(hits, hits, hits, {}, 1), seed=seed, epoch=2)
        assert keep.tolist() == [True, False]


@given(st.lists(VISITS, min_size=2, max_size=40), st.sampled_from(["window", "run"]), SEEDS, st.data())
def test_easy_pruning_takes_the_fewest_hits_and_never_what_nobody_has_seen(pairs, by, seed, data):
    pruned = data.draw(st.integers(1, len(pairs) - 1))
    hits, visits = (np.array(values, dtype=np.uint8) for values in zip(*pairs, strict=True))
    keep, _ = select(EasyPruning(by), Known(hits, hits, visits, {}, pruned), seed=seed, epoch=2)
    hard = [
        int(hits[x]) if by == "window" else Fraction(int(hits[x]), max(1, int(visits[x]))) for x in range(hits.size)
    ]
    unseen = max(hard) + 1
    ranks = [-each if visits[x] else -int(unseen) - 1 for x, each in enumerate(hard)]
    seen = int(np.count_nonzero(visits))
    if pruned <= seen:
        assert keep[visits == 0].all()
        assert keep.tolist() == plain_keep(ranks, pruned, seed, 2)
    assert not EasyPruning(by).arrays(5)


@given(
    schedules(), st.integers(2, 30), SEEDS, st.sampled_from([LossRanked(), LossRanked(0.9), EasyPruning()]), st.data()
)
def test_a_run_ranks_by_the_last_loss_of_each_sample_before_the_epoch(schedule, samples, seed, policy, data):
    prune, feed = data.draw(st.integers(1, samples - 1)), data.draw(feeds(samples))
    run = pruner(samples, schedule, prune=prune, policy=policy, seed=seed)
    last = np.full(samples, np.nan, dtype=np.float32)
    for epoch in run.epochs():
        expected = np.ones(samples, dtype=bool), None
        if epoch.pruned:
            expected = select(policy, known(last, prune), seed=seed, epoch=epoch.number)
        assert np.array_equal(epoch.keep, expected[0])
        assert np.array_equal(epoch.weights, expected[1]) if epoch.weights is not None else expected[1] is None
        for ids, losses in feed.batches(np.flatnonzero(epoch.keep), epoch.number):
            run.observe(losses, ids)
            for x, loss in zip(ids, losses, strict=True):
                last[x] = loss
    assert np.array_equal(run.arrays["loss"], last, equal_nan=True)
