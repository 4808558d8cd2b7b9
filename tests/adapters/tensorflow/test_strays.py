"""Samples that ``tf.data`` gives against the mask: by a cache, a repeat or an old iterator behind ``prune``."""

import numpy as np
import pytest
import tensorflow as tf

from prunedata.adapters.tensorflow import wrap
from prunedata.errors import LossError, SkippedSamples
from tests.adapters.helpers.tensorflow import KEPT, SAMPLES, losses_of, make_pruner, one_epoch, parse, raw


@pytest.mark.parametrize("disk", [False, True], ids=["memory", "file"])
def test_a_cache_behind_prune_is_noticed(tmp_path, disk):
    pruner = make_pruner()
    pairs = wrap(raw(), pruner).cache(str(tmp_path / "cache") if disk else "")
    one_epoch(pairs, pruner)
    with pytest.raises(LossError, match=r"Got 180 that are pruned.*cache"):
        one_epoch(pairs, pruner)


def test_the_raw_dataset_iterated_in_the_place_of_the_pruned_one_is_named():
    pruner = make_pruner()
    pairs = wrap(raw(), pruner)
    one_epoch(pairs, pruner)
    with pytest.raises(LossError, match=r"Got 180 that are pruned.*the dataset iterated that you gave to wrap\(\)"):
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
    with pytest.raises((LossError, SkippedSamples), match=r"an iterator of an earlier epoch|were not"):
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
