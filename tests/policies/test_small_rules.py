"""What single policies say of themselves, on a handful of samples each."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata.errors import PrunedataError
from prunedata.policies import BoundedLoss, DroppingCount, EasyPruning, LossRanked, Random, RunningLoss
from prunedata.policies.protocol import Known, describe
from prunedata.policies.rules import LARGEST, High, hit_rate


def known(*, hits=(), visits=(), counts=(), num_pruned=0, **arrays):
    return Known(
        np.array(counts, np.uint8), np.array(hits, np.uint32), np.array(visits, np.uint32),
        {name: np.array(values, np.float32) for name, values in arrays.items()}, num_pruned,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "number", "plain"),
    [
        (DroppingCount, "tolerance", np.float32(0.5), 0.5),
        (EasyPruning, "tolerance", np.int64(2), 2.0),
        (LossRanked, "ratio", np.float64(0.25), 0.25),
        (RunningLoss, "decay", np.float32(0.5), 0.5),
        (BoundedLoss, "decay", np.float32(0.5), 0.5),
    ],
)
def test_numpy_numbers_become_plain_ones(kind, name, number, plain):
    policy = kind(**{name: number})
    assert policy == kind(**{name: plain})
    assert type(getattr(policy, name)) is float
    assert json.loads(json.dumps(describe(policy)))[name] == plain


@pytest.mark.parametrize("kind", [DroppingCount, EasyPruning])
def test_a_negative_tolerance_is_refused_by_its_name(kind):
    with pytest.raises(PrunedataError, match=r"^Expected tolerance .*Got -1"):
        kind(tolerance=-1)


BY_LOSSES = [EasyPruning(), LossRanked(), RunningLoss(), BoundedLoss()]


@pytest.mark.parametrize("policy", [DroppingCount(), *BY_LOSSES], ids=repr)
def test_those_that_go_by_losses_ask_for_them_and_tolerate_none_above_the_mean(policy):
    assert (policy.needs_losses, policy.tolerance) == (True, 0.0)


@pytest.mark.parametrize("policy", BY_LOSSES, ids=repr)
def test_their_arrays_take_4_bytes_for_each_sample(policy):
    (array,) = policy.arrays(5).values()
    assert (array.dtype, array.shape) == (np.float32, (5,))


@pytest.mark.parametrize("make", [DroppingCount, EasyPruning])
def test_an_order_that_is_none_is_refused_with_those_that_are(make):
    orders = ("'loss', " if make is EasyPruning else "") + "'window' or 'run'"
    with pytest.raises(PrunedataError, match=rf"^Expected by={orders}\. Got 'windows'\.$"):
        make(by="windows")


@pytest.mark.parametrize("ratio", [0.0, 1.0, -0.5, math.nan])
def test_a_ratio_that_makes_no_sense_is_refused(ratio):
    with pytest.raises(PrunedataError, match="Expected ratio to be"):
        LossRanked(ratio)


@pytest.mark.parametrize("decay", [-0.1, 1.0, math.nan])
def test_a_decay_that_makes_no_sense_is_refused(decay):
    with pytest.raises(PrunedataError, match="Expected decay to be"):
        RunningLoss(decay)


def test_a_decay_of_0_is_the_last_excess_alone():
    policy, arrays = RunningLoss(0), RunningLoss().arrays(3)
    assert arrays["excess"].tolist() == [0, 0, 0]
    policy.update(arrays, np.array([0, 1]), np.array([3.0, 1.0]), np.array([2.0, 2.0]))
    policy.update(arrays, np.array([0]), np.array([5.0]), np.array([4.5]))
    assert arrays["excess"].tolist() == [0.5, -1.0, 0.0]


def test_an_average_moves_towards_what_is_new():
    policy, arrays = RunningLoss(0.75), RunningLoss().arrays(2)
    for loss in (6.0, 2.0):
        policy.update(arrays, np.array([1]), np.array([loss]), np.array([2.0]))
    assert arrays["excess"].tolist() == [0.0, 0.75]
    assert policy.scores(known(excess=arrays["excess"])).tolist() == [0.0, 0.75]


@pytest.mark.parametrize("loss", [math.inf, 1e300, -math.inf])
def test_the_largest_losses_stay_finite(loss):
    for policy in (RunningLoss(0), LossRanked()):
        arrays = policy.arrays(1)
        policy.update(arrays, np.array([0]), np.array([loss]), np.array([-loss]))
        (array,) = arrays.values()
        assert array.tolist() == [math.copysign(LARGEST, loss)]


@pytest.mark.parametrize("loss", [math.inf, -math.inf, 1e300, -1e300])
def test_a_largest_loss_that_is_its_batches_mean_has_no_excess(loss):
    policy = RunningLoss(0)
    arrays = policy.arrays(1)
    policy.update(arrays, np.array([0]), np.array([loss]), np.array([loss]))
    assert arrays["excess"].tolist() == [0.0]


@given(
    st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0, 8.0, math.nan]), min_size=1, max_size=12),
    st.sampled_from([0.25, 0.5, 0.75]),
    st.data(),
)
def test_the_group_to_prune_from_is_below_the_mean_or_as_large_as_the_ratio_asks(losses, ratio, data):
    num_pruned = data.draw(st.integers(0, len(losses) - 1))
    group = LossRanked(ratio).scores(known(loss=losses, num_pruned=num_pruned))
    seen = [loss for loss in losses if not math.isnan(loss)]
    if not seen:
        assert group.all()
        return
    below = [loss < math.fsum(seen) / len(seen) for loss in losses]
    wanted = math.ceil(min(num_pruned / ratio, len(losses)))
    if sum(below) < wanted:
        last = sorted(math.inf if math.isnan(loss) else loss for loss in losses)[wanted - 1]
        below = [loss <= last or last == math.inf for loss in losses]
    assert group.tolist() == below


@pytest.mark.parametrize(("num_pruned", "ratio", "group"), [(1, 0.5, 2), (1, 1 / 3, 3), (2, 0.5, 4)])
def test_the_group_grows_by_the_next_lowest_losses(num_pruned, ratio, group):
    """Only one of five losses lies below their mean."""
    for losses in itertools.permutations([0.0, 7.0, 8.0, 9.0, 10.0]):
        scores = LossRanked(ratio).scores(known(loss=losses, num_pruned=num_pruned))
        assert np.array(losses)[scores == 1].tolist() == [loss for loss in losses if loss in sorted(losses)[:group]]


def test_the_mean_is_not_rounded_as_the_losses_are():
    """The mean of two neighbors in float32 lies between them."""
    losses = [1.0, np.nextafter(np.float32(1), np.float32(2))]
    assert LossRanked().scores(known(loss=losses)).tolist() == [1, 0]


def test_so_does_a_large_group():
    losses = np.random.default_rng(0).permutation(np.arange(3000, dtype=np.float32) ** 2)
    for num_pruned in range(700, 1500):
        scores = LossRanked(0.5).scores(known(loss=-losses, num_pruned=num_pruned))
        assert (scores == (-losses < np.sort(-losses)[2 * num_pruned])).all()


def test_those_kept_of_the_group_weigh_for_all_of_it():
    keep = np.array([True, False, True, True, True])
    weights = LossRanked().weights(keep, known(loss=[0, 0, 0, 4, 6], num_pruned=1))
    assert (weights.dtype, weights.tolist()) == (np.float32, [1.5, 0.0, 1.5, 1.0, 1.0])


def test_random_scores_all_alike_and_asks_for_no_losses():
    assert Random().scores(known(counts=[3, 0, 1])).tolist() == [0, 0, 0]
    assert (Random().needs_losses, Random().tolerance) == (False, 0.0)


def test_a_hit_rate_is_in_65535ths_and_0_for_samples_never_seen():
    found = hit_rate(known(hits=[0, 1, 1, 4_000_000_000, 0], visits=[0, 1, 3, 4_000_000_000, 7]))
    assert (found.dtype, found.tolist()) == (np.uint16, [0, 65535, 21845, 65535, 0])


@pytest.mark.parametrize("by", ["window", "run"])
def test_easy_pruning_mirrors_the_hits_and_leaves_those_never_seen_to_the_last(by):
    scores = EasyPruning(by=by).scores(known(counts=[0, 1, 2, 0], hits=[0, 1, 3, 0], visits=[1, 2, 3, 0]))
    assert list(np.argsort(-scores.astype(int), kind="stable")) == [0, 1, 2, 3]
    assert len(set(scores.tolist())) == 4


def test_easy_pruning_by_loss_prunes_the_lowest_first():
    scores = EasyPruning().scores(known(loss=[2.0, 1.0, math.nan, -1.0]))
    assert (scores.dtype, scores.tolist()) == (np.float32, [-2.0, -1.0, -math.inf, 1.0])


class TestHigh:
    @pytest.mark.parametrize(("epochs", "kind"), [(1, np.uint16), (65_535, np.uint16), (65_536, np.uint32)])
    def test_it_is_as_wide_as_the_run_is_long(self, epochs, kind):
        assert High(10, epochs).arrays(4)["high"].dtype == kind

    def test_it_counts_losses_above_a_blind_guess_up_to_its_largest_number(self):
        high, losses = High(10, 5), np.array([math.log(10), 2.31, 2.3, 9.0])
        arrays = {"high": np.array([0, 7, 7, 65_534, 65_535], np.uint16)}
        for ids in ([0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 2, 3]):
            high.update(arrays, np.array(ids), losses, losses)
        assert arrays["high"].tolist() == [0, 10, 7, 65_535, 65_535]
