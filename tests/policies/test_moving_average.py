"""RunningLoss and BoundedLoss: averages of what each sample's losses say, against a plain loop."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, Schedule
from prunedata.counting.batches import Batches
from prunedata.counting.counts import Tally
from prunedata.counting.sample_arrays import SampleArrays
from prunedata.errors import PrunedataError
from prunedata.policies import BoundedLoss, DroppingCount, RunningLoss
from prunedata.policies.protocol import Known

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


def test_each_loss_is_held_against_the_mean_of_its_own_batch():
    run = Pruner(4, Schedule(2, 2, 1, 1, 1), prune=1, policy=RunningLoss(decay=0))
    run.begin_epoch()
    run.observe(np.array([1.0, 2.0]), np.array([0, 1]))
    run.observe(np.array([10.0, 12.0]), np.array([2, 3]))
    run.end_epoch()
    assert run.arrays["excess"].tolist() == [-0.5, 0.5, -1.0, 1.0]
    assert run.begin_epoch().keep.tolist() == [True, True, True, False]


def test_no_loss_counts_for_more_than_one_and_a_label_s_probability_is_what_counts():
    run = Pruner(4, Schedule(2, 2, 1, 1, 1), prune=1, policy=BoundedLoss(decay=0.5))
    run.begin_epoch()
    run.observe(-np.log(np.array([1.0, 0.5, 0.25, 1e-30])), np.array([0, 1, 2, 3]))
    run.end_epoch()
    np.testing.assert_allclose(run.arrays["doubt"], [0, 0.25, 0.375, 0.5])
    assert run.begin_epoch().keep.tolist() == [True, True, True, False]


def test_it_finds_by_how_much_where_counts_only_see_how_often():
    run = Pruner(4, Schedule(3, 3, 2, 1, 1), prune=1, policy=RunningLoss())
    for epoch in run.epochs():
        run.observe(np.array([0.0, 0.0, 1.0, 9.0])[epoch.keep], np.flatnonzero(epoch.keep))
    assert run.visits.tolist() == [3, 3, 3, 2]


def test_scores_are_the_averages():
    excess = np.array([1, -1], np.float32)
    known = Known(*(np.zeros(2, np.uint8),) * 3, arrays={"excess": excess}, num_pruned=1)
    assert RunningLoss().scores(known) is excess


@pytest.mark.parametrize("kind", [RunningLoss, BoundedLoss])
@pytest.mark.parametrize("decay", [-0.1, 1, 1.5, float("nan"), "0.5", None])
def test_a_decay_that_makes_no_sense_is_refused(kind, decay):
    with pytest.raises(PrunedataError, match="decay"):
        kind(decay)


def test_policies_differ_by_their_decay():
    assert RunningLoss(0.5) != RunningLoss() == RunningLoss(0.8) != DroppingCount()
    assert BoundedLoss(0.8) != RunningLoss(0.8)
