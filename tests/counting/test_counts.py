"""Algorithm 1 against loops and dicts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import prunedata.counting.buffer
from prunedata import Schedule
from prunedata.counting.counts import Tally, batch_means, find_hits
from prunedata.policies import DroppingCount
from prunedata.types import smallest_unsigned
from tests.common.strategies import (
    FORMS,
    LOSSES,
    SEEDS,
    PlainRun,
    batches,
    feeds,
    in_form,
    plain_mean,
    policies,
    pruner,
    schedules,
)


def kept_by(run):
    return run.samples if not run.schedule.pruned_epochs else run.kept_in(run.schedule.pruned_epochs[0])


@st.composite
def cut_losses(draw):
    """(losses, sizes): equal sizes, equal but for the last, one batch, or ragged."""
    size, count = draw(st.integers(1, 40)), draw(st.integers(1, 12))
    sizes = [size] * count
    shape = draw(st.sampled_from(["equal", "short last", "long last", "ragged"]))
    if shape == "ragged":
        sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=12))
    elif shape != "equal":
        sizes.append(draw(st.integers(1, size) if shape == "short last" else st.integers(size, 3 * size)))
    total = sum(sizes)
    kind = draw(st.sampled_from(["equal", "a few bits apart", "spread"]))
    if kind == "equal":
        losses = np.full(total, draw(LOSSES))
    elif kind == "a few bits apart":
        steps = np.random.default_rng(draw(SEEDS)).integers(-3, 4, total)
        losses = draw(LOSSES) * (1 + steps * draw(st.sampled_from([2.0**-52, 2.0**-23])))
    else:
        losses = np.random.default_rng(draw(SEEDS)).lognormal(0, draw(st.sampled_from([0.5, 8.0])), total)
        losses *= draw(st.sampled_from([1.0, -1.0]))
    return losses, sizes


def by_batch(losses, sizes):
    return np.split(losses, np.cumsum(sizes)[:-1])


def hits_of_a_loop(losses, sizes, tolerance=0.0):
    hits = []
    for batch in by_batch(losses, sizes):
        mean = plain_mean(batch.tolist())
        hits += [loss > mean + tolerance * abs(mean) for loss in batch.tolist()]
    return hits


@given(cut_losses(), st.integers(0, 3))
def test_a_batch_has_the_same_mean_wherever_the_block_is_cut(case, first):
    losses, sizes = case
    means = batch_means(losses, np.array(sizes))
    assert means.dtype == np.float64
    np.testing.assert_allclose(means, [batch.mean() for batch in by_batch(losses, sizes)], rtol=1e-12)
    first = min(first, len(sizes) - 1)
    rest = losses[sum(sizes[:first]) :].copy()
    assert batch_means(rest, np.array(sizes[first:])).tolist() == means[first:].tolist()


@given(cut_losses(), st.sampled_from([0.0, 0.1, 1.0, 3.0]), st.sampled_from([np.float32, np.float64]))
def test_hits_are_those_of_a_loop(case, tolerance, dtype):
    losses, sizes = case[0].astype(dtype), np.array(case[1])
    means = batch_means(losses.astype(np.float64), sizes)
    assert find_hits(losses, sizes, means, tolerance).tolist() == hits_of_a_loop(losses, sizes, tolerance)


def at_the_limit(equal, zeros):
    """Of so many zeros to each loss, every loss lies at ``mean * (1 + zeros)``, but for rounding."""
    batches = [np.repeat([equal, 0.0], [n, n * zeros]) for n in (100, 333, 1000)]
    return np.concatenate(batches), [batch.size for batch in batches]


def of_both_signs(cancel):
    """They sum to nothing but rounding, which decides whether a loss of zero is a hit."""
    random = np.random.default_rng(cancel)
    parts = [random.lognormal(0, 1, cancel) for _ in range(20)]
    losses = [random.permutation(np.concatenate([part, -part, [0.0]])) for part in parts]
    return np.concatenate(losses), [2 * cancel + 1] * 20


@pytest.mark.parametrize(
    ("case", "tolerance"),
    [
        *(((np.full(1000, equal), [10, 990]), 0.0) for equal in (0.1, 0.7, 1e-310, 3.0, 1e300, -0.1)),
        *((at_the_limit(equal, zeros), zeros) for equal in (0.1, 0.3, 0.7, 1.1) for zeros in (1, 2, 3)),
        *((of_both_signs(cancel), 0.0) for cancel in (4, 8, 16, 100)),
        # Their mean is twice as large as the smallest is below zero.
        *(((np.array([equal] * 8 + [-equal / 2, 5 * equal / 2]), [10]), 0.0) for equal in (0.1, 1.1)),
        # The limit is beyond all losses, and in their dtype infinite.
        ((np.full(4, np.finfo(np.float32).max / 8, np.float32), [4]), 20.0),
        ((np.full(4, np.finfo(np.float64).max / 8), [4]), 20.0),
    ],
)
def test_where_rounding_decides_hits_are_those_of_a_loop(case, tolerance):
    losses, sizes = case[0], np.array(case[1])
    means = batch_means(losses.astype(np.float64), sizes)
    assert find_hits(losses, sizes, means, tolerance).tolist() == hits_of_a_loop(losses, sizes, tolerance)


def test_a_loss_at_the_mean_is_no_hit_and_tolerance_does_not_flip_below_zero():
    def hits(losses, tolerance=0.0):
        sizes = np.array([len(losses)])
        return find_hits(np.array(losses), sizes, batch_means(np.array(losses), sizes), tolerance).tolist()

    assert hits([-2.0, -1.0, -3.0]) == [False, True, False]
    # The printed mean * (1 + tolerance) would be -3, and all would be hits.
    assert hits([-2.0, -2.0, -2.0], 0.5) == [False, False, False]
    assert hits([-2.5, -0.5, -3.0], 0.5) == [False, True, False]


@given(schedules(max_epochs=6), policies(), st.integers(1, 25), st.data())
def test_a_run_counts_as_algorithm_1_does(schedule, policy, samples, data):
    capacity, form = data.draw(st.sampled_from([3, 7, 65536])), data.draw(st.sampled_from(FORMS))
    feed, seed = data.draw(feeds(samples)), data.draw(SEEDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prunedata.counting.buffer, "CAPACITY", capacity)
        run = pruner(samples, schedule, prune=data.draw(st.integers(0, samples - 1)), policy=policy, seed=seed)
        model = PlainRun(samples, schedule, policy, kept_by(run), seed)
        for epoch in run.epochs():
            model.begin()
            assert epoch.keep.tolist() == model.keep
            drawn = data.draw(batches(samples)) if epoch.number < 2 else []
            for ids, losses in [*drawn, *feed.batches(np.flatnonzero(epoch.keep), epoch.number)]:
                given_ids, given_losses, meant = in_form(ids, losses, form)
                run.observe(given_losses, given_ids)
                model.observe(ids, meant)
            assert run.counts.tolist() == model.counts_now()  # the open epoch included
            model.end()
        assert run.counts.tolist() == model.counts_now()
        assert run.hits.tolist() == [model.hits[x] for x in range(samples)]
        assert run.visits.tolist() == [model.visits[x] for x in range(samples)]


@pytest.mark.parametrize("sizes", [[70_000], [128] * 1100, [65_536, 1, 65_535, 2, 9_000], [60_000, 60_000, 65_537]])
def test_batches_around_the_size_of_a_block_count_as_the_loop_does(sizes):
    schedule = Schedule(2, window=2, start=1, block=1, pruned_per_block=1)
    policy, samples = DroppingCount(tolerance=0.5, by="run"), 5_000
    run, random = pruner(samples, schedule, prune=10, policy=policy), np.random.default_rng(7)
    model = PlainRun(samples, schedule, policy, samples - 10)
    run.begin_epoch()
    model.begin()
    for size in sizes:
        ids, losses = random.integers(0, samples, size), random.choice([0.1, 0.2, 0.7], size)
        run.observe(losses, ids)
        model.observe(ids, losses.tolist())
    assert run.counts.tolist() == model.counts_now()


@pytest.mark.parametrize(("times", "kind"), [(1, np.uint16), (256, np.uint32)])
def test_counts_get_wider_where_they_must(times, kind):
    run = pruner(3, Schedule(3, window=3, start=1, block=1, pruned_per_block=0), prune=1)
    assert run.counts.dtype == run.hits.dtype == run.visits.dtype == np.uint8
    for _ in run.epochs():
        for _ in range(times):
            run.observe(np.repeat([5.0, 7.0, 1.0], [100, 1, 200]), np.repeat([0, 1, 2], [100, 1, 200]))
    assert run.counts.tolist() == run.hits.tolist() == [n * times for n in (300, 3, 0)]
    assert run.visits.tolist() == [n * times for n in (300, 3, 600)]
    assert run.counts.dtype == run.hits.dtype == run.visits.dtype == kind


def test_dtypes_are_the_smallest_that_hold():
    assert [smallest_unsigned(n) for n in (0, 255, 256, 65535, 65536)] == [
        np.dtype(kind) for kind in (np.uint8, np.uint8, np.uint16, np.uint16, np.uint32)
    ]


@given(st.integers(1, 20), st.data())
def test_hits_that_are_told_later_are_added_to_the_visits(samples, data):
    ids = data.draw(st.lists(st.integers(0, samples - 1), max_size=30))
    hit = data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))
    tally = Tally(samples)
    tally.add(np.array(ids, dtype=np.int64), np.array(hit, dtype=np.bool_))
    later = data.draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
    tally.hit(np.array(later, dtype=np.int64))
    told = [x for x, was_hit in zip(ids, hit, strict=True) if was_hit] + later
    assert tally.hits.tolist() == [told.count(x) for x in range(samples)]
    assert tally.visits.tolist() == [ids.count(x) for x in range(samples)]


def test_a_copy_of_a_tally_counts_on_by_itself():
    tally = Tally(3)
    tally.add(np.array([0, 0, 2]), np.array([True, False, True]))
    copy = tally.copy()
    assert (copy.packed.tolist(), copy.observed) == (tally.packed.tolist(), 3)
    copy.add(np.array([1]), np.array([True]))
    assert (tally.visits.tolist(), tally.observed) == ([2, 0, 1], 3)
    assert (copy.visits.tolist(), copy.hits.tolist(), copy.observed) == ([2, 1, 1], [1, 1, 1], 4)
