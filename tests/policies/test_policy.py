"""Which samples are pruned: the policies' scores and weights, against plain loops, and what they refuse."""

import math
from dataclasses import FrozenInstanceError, dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, Schedule
from prunedata.errors import PrunedataError
from prunedata.policies import DroppingCount, EasyPruning, Known, LossRanked, Random
from prunedata.policies.protocol import describe
from prunedata.run.epoch import select
from tests.common.strategies import SEEDS, feeds, plain_keep, pruner, schedules

pytestmark = pytest.mark.filterwarnings("ignore::prunedata.errors.UnweighedWarning")  # nothing is trained here

VISITS = st.integers(0, 255).flatmap(lambda v: st.tuples(st.integers(0, v), st.just(v)))


def scores(policy, pairs, kind=np.uint8):
    hits, visits = (np.array(values, dtype=kind) for values in zip(*pairs, strict=True))
    return policy.scores(Known(np.arange(len(pairs), dtype=np.uint8)[::-1], hits, visits, {}, 1))


@given(st.lists(VISITS, min_size=1, max_size=40))
def test_rank_run_orders_as_the_exact_fractions_do(pairs):
    got = [int(score) for score in scores(DroppingCount(by="run"), pairs)]
    exact = [Fraction(hits, max(1, visits)) for hits, visits in pairs]
    for a, x in zip(got, exact, strict=True):
        for b, y in zip(got, exact, strict=True):
            assert (a < b, a == b) == (x < y, x == y)


def test_rank_run_tells_all_fractions_of_255_visits_apart():
    pairs = [(h, v) for v in range(1, 256) for h in range(v + 1)]
    got = scores(DroppingCount(by="run"), pairs)
    exact = np.array([Fraction(h, v) for h, v in pairs])
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


@pytest.mark.parametrize("tolerance", [-0.1, np.nan, np.inf, -np.inf, None, "0.5", True, [1.0]])
def test_a_tolerance_that_makes_no_sense_is_refused(tolerance):
    with pytest.raises(PrunedataError, match=r"Expected .*tolerance.* Got"):
        DroppingCount(tolerance=tolerance)


@pytest.mark.parametrize("by", ["epoch", "", None, 3, "Window"])
def test_an_unknown_order_is_refused(by):
    with pytest.raises(PrunedataError, match=r"Expected by='window' or 'run'. Got"):
        DroppingCount(by=by)
    with pytest.raises(PrunedataError, match=r"Expected by='loss', 'window' or 'run'. Got"):
        EasyPruning(by=by)


@pytest.mark.parametrize("ratio", [0, 1, -0.5, 2, np.nan, np.inf, None, "0.5", True])
def test_a_ratio_that_makes_no_sense_is_refused(ratio):
    with pytest.raises(PrunedataError, match=r"Expected ratio to be .* Got"):
        LossRanked(ratio=ratio)


def test_policies_are_frozen_values_that_say_what_they_are():
    assert DroppingCount() == DroppingCount(tolerance=0.0, by="window")
    assert len({DroppingCount(), DroppingCount(0.0), DroppingCount(0.5), Random(), Random()}) == 3
    with pytest.raises(FrozenInstanceError):
        DroppingCount().tolerance = 1.0
    assert describe(DroppingCount(0.5, "run")) == {"name": "DroppingCount", "tolerance": 0.5, "by": "run"}
    assert describe(Random()) == {"name": "Random"}
    assert describe(LossRanked(0.75)) == {"name": "LossRanked", "ratio": 0.75}
    assert describe(EasyPruning()) == {"name": "EasyPruning", "by": "loss", "tolerance": 0.0}
    assert LossRanked().needs_losses
    assert EasyPruning().needs_losses
    assert (Random().tolerance, Random().needs_losses, DroppingCount().needs_losses) == (0.0, False, True)


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


def test_the_weighted_sample_stands_for_all_samples():
    """Every sample counts once in the mean over seeds, whether its loss is low or high."""
    losses, seeds = [0.1, 0.2, 0.2, 0.3, 0.3, 0.4, 5.0, 6.0, 7.0], 4000
    weights = np.array([select(LossRanked(), known(losses, 3), seed=s, epoch=1)[1] for s in range(seeds)])
    # Of a group of 6, 3 are pruned: a weight is 0 or 2, of deviation 1.
    assert np.abs(weights[:, :6].mean(axis=0) - 1).max() < 5 / seeds**0.5
    assert (weights[:, 6:] == 1).all()


def test_equal_losses_are_pruned_fairly():
    pruned = sum(~select(EasyPruning(), known([0.5] * 8 + [2.0], 2), seed=s, epoch=1)[0] for s in range(4000))
    assert pruned[8] == 0
    assert np.abs(pruned[:8] / 4000 - 0.25).max() < 5 * (0.1875 / 4000) ** 0.5


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


def test_of_several_losses_the_last_holds_and_none_is_too_large():
    run = Pruner(3, Schedule(2, 2, 1, 1, 1), prune=1, policy=LossRanked())
    for _ in run.epochs():
        run.observe([5.0, -1e300, 2.5], [0, 1, 0])
        run.observe([1e300], [2])
    limit = np.finfo(np.float32).max
    assert run.arrays["loss"].tolist() == [2.5, -limit, limit]


# -- policies of the user's own


@dataclass(frozen=True)
class Steep:
    """Prunes where the loss rose most since the visit before."""

    tolerance = 0.0
    needs_losses = True

    def arrays(self, samples):
        return {"before": np.zeros(samples), "rise": np.zeros(samples, dtype=np.float32)}

    def update(self, arrays, ids, losses, means):
        arrays["rise"][ids] = losses - arrays["before"][ids]
        arrays["before"][ids] = losses

    def scores(self, known):
        return known.arrays["rise"]


def test_a_policy_of_the_users_own_keeps_arrays():
    run = Pruner(4, Schedule(3, 3, 2, 1, 1), prune=2, policy=Steep())
    for losses in ([1.0, 2.0, 3.0, 4.0], [1.5, 9.0, 3.25, 2.0]):
        run.begin_epoch()
        run.observe(losses, np.arange(4))
        run.end_epoch()
    assert run.begin_epoch().keep.tolist() == [False, False, True, True]
    assert run.arrays["rise"].tolist() == [0.5, 7.0, 0.25, -2.0]


@pytest.mark.parametrize("name", ["counts", "hits", "visits", "tally", "high", "a b", "open-loss", "", 3])
def test_arrays_need_names_of_their_own(name):
    class Policy(Steep):
        def arrays(self, samples):
            return {name: np.zeros(samples)}

    with pytest.raises(PrunedataError):
        Pruner(4, Schedule(3, 3, 2, 1, 1), prune=2, policy=Policy(), classes=10)


@pytest.mark.parametrize("array", [np.zeros(3), np.zeros((4, 1)), np.zeros(4, dtype="U3"), [0.0] * 4, None])
def test_arrays_need_one_number_for_each_sample(array):
    class Policy(Steep):
        def arrays(self, samples):
            return {"mine": array}

    with pytest.raises(PrunedataError, match=r"Expected the array mine of shape \(4,\).* Got"):
        Pruner(4, Schedule(3, 3, 2, 1, 1), prune=2, policy=Policy())


def test_scores_with_nan_are_refused_as_scores():
    class Unseen(Steep):
        def scores(self, known):
            return np.full(4, np.nan)

    run = Pruner(4, Schedule(3, 3, 1, 1, 1), prune=2, policy=Unseen())
    run.begin_epoch()
    run.observe(np.ones(4), np.arange(4))
    run.end_epoch()
    with pytest.raises(PrunedataError, match="Got 4 NaN"):
        run.begin_epoch()
