"""Loops over tf.data: what doesn't count is not learnt, and batches from elsewhere are noticed."""

import numpy as np
import pytest
import tensorflow as tf

from prunedata.adapters.tensorflow import wrap
from prunedata.errors import LossError, SkippedSamples
from tests.adapters.helpers.loops import (
    MODES,
    RUNS,
    assert_figures_are_not_lost,
    assert_learns_no_more,
    assert_warned_unless_it_weighs,
    train,
)
from tests.adapters.helpers.loops import SAMPLES as FEW
from tests.adapters.helpers.tensorflow import KEPT, SAMPLES, losses_of, make_pruner, one_epoch, parse, raw

# A loop over tf.data learns nothing of what doesn't count, is warned if it would, and loses no figure.


def of_tensorflow(pruner, size, drop):
    return wrap(tf.data.Dataset.range(FEW), pruner).batch(size, drop_remainder=drop).prefetch(1)


@pytest.mark.parametrize("run", RUNS)
def test_nothing_is_learnt_of_what_does_not_count(run):
    assert_learns_no_more(train, of_tensorflow, RUNS[run])


@pytest.mark.filterwarnings("ignore::prunedata.errors.RandomPruningWarning")  # batches of one
@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_learnt_in_any_mode(mode):
    assert_learns_no_more(train, of_tensorflow, RUNS["held out and left out by weight"], **MODES[mode])


@pytest.mark.parametrize("run", ["held out", "left out by weight", "weighed"])
def test_a_loop_that_never_asks_what_losses_weigh_is_warned(run):
    assert_warned_unless_it_weighs(train, of_tensorflow, RUNS[run])


@pytest.mark.parametrize("stopped", [0, 6, 9])
def test_no_figure_is_lost_between_a_last_batch_and_it(stopped):
    assert_figures_are_not_lost(of_tensorflow, stopped)


# Samples that ``tf.data`` gives against the mask: by a cache, a repeat or an old iterator behind ``prune``.


def test_a_cache_behind_prune_is_noticed():
    pruner = make_pruner()
    pairs = wrap(raw(), pruner).cache()
    one_epoch(pairs, pruner)
    with pytest.raises(LossError, match=r"Got 180 that are pruned.*cache"):
        one_epoch(pairs, pruner)


def test_the_raw_dataset_iterated_in_the_place_of_the_pruned_one_is_named():
    pruner = make_pruner()
    pairs = wrap(raw(), pruner)
    one_epoch(pairs, pruner)
    with pytest.raises(LossError, match="Got 180 that are pruned"):
        one_epoch(raw().enumerate(), pruner)


def test_a_cache_of_a_pruned_epoch_is_noticed():
    pruner = make_pruner()
    one_epoch(wrap(raw(), pruner), pruner)
    pairs = wrap(raw(), pruner).cache()
    one_epoch(pairs, pruner)
    with pytest.raises(SkippedSamples, match="180 that were not"):
        one_epoch(pairs, pruner)


def test_a_repeat_behind_prune_is_noticed():
    pruner = make_pruner()
    with pytest.raises(LossError, match=r"Got 603 of them more often.*repeat"):
        one_epoch(wrap(raw(), pruner).repeat(2), pruner)


def test_an_endless_repeat_behind_prune_ends():
    pruner = make_pruner()
    with pytest.raises(tf.errors.InvalidArgumentError, match="repeat"):
        one_epoch(wrap(raw(), pruner).repeat(), pruner)


@pytest.mark.filterwarnings("ignore::prunedata.errors.RandomPruningWarning")  # batches of one
def test_an_iterator_of_an_earlier_epoch_is_noticed():
    """With repeat() and a number of steps, an iterator reads ahead under the mask of the epoch before."""
    pruner = make_pruner()
    endless = iter(wrap(raw(), pruner).repeat().prefetch(SAMPLES))

    def epoch():
        for ids in [next(endless)[0] for _ in range(pruner.begin_epoch().kept)]:
            pruner.observe(losses_of(ids[tf.newaxis], 0), ids[tf.newaxis])
        pruner.end_epoch()

    epoch()
    # Which of the two depends on how far it has read ahead.
    with pytest.raises((LossError, SkippedSamples), match=r"earlier epoch|were not"):
        epoch()


def test_pruned_samples_and_repeated_ones_may_be_observed_beside_the_dataset():
    """As in the core."""
    pruner, told = make_pruner(), make_pruner()
    dataset = wrap(raw(), pruner).map(parse).batch(32)
    for epoch in pruner.epochs():
        told.begin_epoch()
        batches = [ids.numpy() for ids, _ in dataset]
        if epoch.kept < SAMPLES:
            batches.append(np.flatnonzero(~epoch.keep))
        batches.append(np.repeat(batches[0], 2))
        for ids in batches:
            for each in (pruner, told):
                each.observe(losses_of(ids, epoch.number), ids)
        told.end_epoch()
    assert [record["observed"] for record in pruner.history] == [SAMPLES + 64] * 5
    assert np.array_equal(pruner.visits, told.visits)
    assert np.array_equal(pruner.hits, told.hits)


def test_samples_that_a_stage_behind_prune_doubles_count_twice():
    pruner = make_pruner()
    twice = wrap(raw(), pruner).flat_map(lambda *pair: tf.data.Dataset.from_tensors(pair).repeat(2))
    for epoch in pruner.epochs():
        for ids, _ in twice.batch(64):
            pruner.observe(losses_of(ids, epoch.number), ids)
    assert [record["observed"] for record in pruner.history] == [2 * kept for kept in KEPT]


@pytest.mark.parametrize("by_batch", [False, True])
def test_a_share_of_an_epoch_is_missed_as_processes_are_not_merged(by_batch):
    pruner = make_pruner(holdout=0.2)
    pairs = wrap(raw(), pruner)
    share = pairs.batch(32).shard(2, 0) if by_batch else pairs.shard(2, 0).batch(32)
    epoch = pruner.begin_epoch()
    for ids, _ in share:
        assert epoch.factors(ids.numpy()).shape == ids.shape
        pruner.observe(losses_of(ids, epoch.number), ids)
    with pytest.raises(SkippedSamples, match=r"Got \d+ that were not"):
        pruner.end_epoch()
