"""Each built-in policy: made again from its description, its numbers on a few samples, and averages by a plain loop."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import policies
from prunedata.counting.batches import Batches
from prunedata.counting.counts import Tally
from prunedata.counting.sample_arrays import SampleArrays
from prunedata.errors import PrunedataError
from prunedata.policies import BoundedLoss, DroppingCount, EasyPruning, LossRanked, Random, RecentLoss, RunningLoss
from prunedata.policies.protocol import Known, describe
from prunedata.policies.rules import BUILT_IN, LARGEST, High, from_description, hit_rate

# A built-in policy, made again from its description.


POLICIES = [
    BoundedLoss(0.9), DroppingCount(0.5, "run"), EasyPruning("window", 0.25), LossRanked(0.75),
    Random(), RecentLoss(0.5), RunningLoss(0.5),
]  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_it_is_the_same_with_all_of_its_parameters(policy):
    assert from_description(json.loads(json.dumps(describe(policy)))) == policy


def test_all_that_the_library_exports_are_there():
    exported = (getattr(policies, name) for name in policies.__all__)
    rules = {one for one in exported if isinstance(one, type) and hasattr(one, "scores")} - {policies.Policy}
    assert set(BUILT_IN.values()) == rules == {type(policy) for policy in POLICIES}


@pytest.mark.parametrize(
    "described",
    [
        None,
        "RunningLoss",
        {},
        {"name": "Mine"},
        {"name": ["RunningLoss"]},
        {"name": "RunningLoss", "decay": 2},
        {"name": "RunningLoss", "speed": 2},
        {"name": "Random", 3: 4},
    ],
)
def test_what_is_none_is_refused(described):
    with pytest.raises(PrunedataError, match=r"Expected .*Got"):
        from_description(described)


# What single policies say of themselves, on a handful of samples each.


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


@pytest.mark.parametrize(
    ("kinds", "name", "values", "told"),
    [
        ((DroppingCount, EasyPruning), "tolerance", [-0.1, np.nan, np.inf, None, "0.5", True, [1.0]], "tolerance"),
        ((DroppingCount,), "by", ["epoch", "", None, 3, "Window"], "by to be 'window' or 'run'. Got"),
        ((EasyPruning,), "by", ["epoch", "", None, 3, "Window"], "by to be 'loss' or 'window' or 'run'. Got"),
        ((LossRanked,), "ratio", [0, 1, -0.5, 2, np.nan, np.inf, None, "0.5", True], "ratio to be .* Got"),
        ((RunningLoss, BoundedLoss), "decay", [-0.1, 1, 1.5, np.nan, "0.5", None], "decay to be .* Got"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(kinds, name, values, told):
    for kind in kinds:
        for value in values:
            with pytest.raises(PrunedataError, match=f"Expected .*{told}"):
                kind(**{name: value})


BY_LOSSES = [EasyPruning(), LossRanked(), RunningLoss(), BoundedLoss()]


@pytest.mark.parametrize("policy", [DroppingCount(), *BY_LOSSES], ids=repr)
def test_those_that_go_by_losses_ask_for_them_and_tolerate_none_above_the_mean(policy):
    assert (policy.needs_losses, policy.tolerance) == (True, 0.0)


@pytest.mark.parametrize("policy", BY_LOSSES, ids=repr)
def test_their_arrays_take_4_bytes_for_each_sample(policy):
    (array,) = policy.arrays(5).values()
    assert (array.dtype, array.shape) == (np.float32, (5,))


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


def test_the_mean_is_not_rounded_as_the_losses_are():
    """The mean of two neighbors in float32 lies between them."""
    losses = [1.0, np.nextafter(np.float32(1), np.float32(2))]
    assert LossRanked().scores(known(loss=losses)).tolist() == [1, 0]


def test_so_does_a_large_group():
    losses = np.random.default_rng(0).permutation(np.arange(3000, dtype=np.float32) ** 2)
    for num_pruned in range(700, 1500):
        scores = LossRanked(0.5).scores(known(loss=-losses, num_pruned=num_pruned))
        assert (scores == (-losses < np.sort(-losses)[2 * num_pruned])).all()


def test_a_hit_rate_is_in_65535ths_and_0_for_samples_never_seen():
    found = hit_rate(known(hits=[0, 1, 1, 4_000_000_000, 0], visits=[0, 1, 3, 4_000_000_000, 7]))
    assert (found.dtype, found.tolist()) == (np.uint16, [0, 65535, 21845, 65535, 0])


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


# RunningLoss and BoundedLoss: averages of what each sample's losses say, against a plain loop.


FLOATS = st.floats(-1e300, 1e300)


def excess(loss, mean):
    largest = float(np.finfo(np.float32).max)

    def clip(value):
        return min(max(value, -largest), largest)

    return clip(clip(loss) - clip(mean))


def doubt(loss, mean):
    return -float(np.expm1(-max(loss, 0.0)))


@pytest.mark.parametrize(("kind", "said"), [(RunningLoss, excess), (BoundedLoss, doubt)])
@given(st.floats(0, 0.99), st.lists(st.tuples(st.integers(0, 5), FLOATS, FLOATS), max_size=40), st.data())
def test_it_is_a_plain_loop_wherever_blocks_are_cut(kind, said, decay, visits, data):
    policy = kind(decay)
    wanted = [np.float32(0)] * 6
    for sample, loss, mean in visits:
        wanted[sample] = np.float32(decay * float(wanted[sample]) + (1 - decay) * said(loss, mean))
    kept = SampleArrays(6, [policy])
    opened = kept.copies()
    tally = Tally(6)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(visits)), max_size=3)) | {0, len(visits)})
    for first, last in pairwise(cuts):  # none is empty, as a run adds no batches of nothing
        block = visits[first:last]
        ids = np.array([sample for sample, _, _ in block], dtype=np.int64)
        losses, means = (np.array([visit[at] for visit in block], dtype=np.float64) for at in (1, 2))
        tally.add(ids, np.zeros(ids.size, np.bool_))
        kept.add(opened, Batches(ids, losses, np.ones(ids.size, np.intp), means), tally.visits)
    assert opened[policy.array].tolist() == wanted
