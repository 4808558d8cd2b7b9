"""Left out by weight from tf.data: every sample comes, and a loop trains on the mean over those that count."""

import numpy as np
import pytest
import tensorflow as tf

from prunedata.adapters.tensorflow import wrap
from tests.adapters.helpers.tensorflow import KEPT, SAMPLES, losses_of, make_pruner, parse, raw

BATCH = 32


def loop(run, dataset, stop=None):
    """Hold each mean to one by hand, in a graph, and return the batches of each epoch."""

    @tf.function
    def mean(factors, losses):
        return tf.reduce_mean(factors * losses)

    batches, done = {}, 0
    for epoch in run.epochs():
        counted = np.ones(SAMPLES, bool) if not epoch.zero_weights else epoch.trained
        for tensor, numbers in dataset:
            ids = tensor.numpy()
            assert ids.tolist() == numbers.numpy().tolist()
            losses = losses_of(ids, epoch.number)
            expected = losses[counted[ids]].sum() / max(1, counted[ids].sum())
            assert mean(epoch.factors(ids), losses).numpy() == pytest.approx(expected, rel=1e-5)
            run.observe(losses, ids)
            batches.setdefault(epoch.number, []).append(ids)
            done += 1
            if done == stop:
                return batches
    return batches


def dataset_of(run):
    return wrap(raw(), run).map(parse).shuffle(100, seed=1).batch(BATCH)


def test_all_samples_come_and_the_counts_are_those_of_leaving_out():
    run, shorter = make_pruner(leave_out="weight"), make_pruner()
    batches = loop(run, dataset_of(run))
    assert [sorted(np.concatenate(each)) for each in batches.values()] == [list(range(SAMPLES))] * 5
    for epoch in shorter.epochs():
        for ids in (ids[epoch.keep[ids]] for ids in batches[epoch.number]):
            if len(ids):
                shorter.observe(losses_of(ids, epoch.number), ids)
    assert [record["observed"] for record in run.history] == KEPT
    assert run.counts.tolist() == shorter.counts.tolist()
    assert run.visits.tolist() == shorter.visits.tolist()
    assert run.saved["visits_by_weight"] == shorter.saved["visits_saved"] > 0


def test_an_epoch_that_was_left_gives_what_was_not_observed():
    run, later = make_pruner(leave_out="weight"), make_pruner(leave_out="weight")
    first = loop(run, dataset_of(run), stop=25)  # an epoch has 19 batches
    later.load_state_dict(run.state_dict())
    rest = loop(later, dataset_of(later))
    assert sorted(np.concatenate(first[1] + rest[1])) == list(range(SAMPLES))
    assert [record["observed"] for record in later.history] == KEPT
