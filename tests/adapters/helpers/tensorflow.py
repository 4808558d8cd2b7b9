"""Datasets whose samples say which they are, and loops that hold every batch and every epoch to it."""

from typing import Any

import numpy as np
import tensorflow as tf

from prunedata import Pruner, Schedule

SAMPLES = 603  # more than a chunk of the filter, and no whole number of them
CHANGING = Schedule(5, window=5, start=1, block=2, pruned_per_block=1)
KEPT = [603, 423, 603, 423, 603]


def make_pruner(samples: int = SAMPLES, **options: Any) -> Pruner:
    return Pruner(samples, CHANGING, **{"prune": 0.3, "seed": 5, **options})


def losses_of(ids: Any, epoch: int) -> Any:
    """A loss of its own for each sample and epoch."""
    return ((np.asarray(ids, np.int64) * 7919 + epoch * 104729) % 101).astype(np.float32) / 101


def raw(samples: int = SAMPLES) -> tf.data.Dataset:
    """Sample i is the string "i"."""
    return tf.data.Dataset.from_tensor_slices(np.arange(samples).astype(str))


def parse(number: tf.Tensor, text: tf.Tensor) -> Any:
    return number, tf.strings.to_number(text, tf.int64)


def train(dataset: tf.data.Dataset, pruner: Pruner) -> list[list[list[int]]]:
    """Train to the end, hold each epoch to its mask, and return the ids of each epoch's batches.

    A second pruner is fed by hand with the losses of what the batches hold, whatever ids stand beside it. It agrees
    with the first in the end only if the ids are right.
    """
    options = {"policy": pruner.policy, "batch_size": pruner.batch_size, "seed": pruner.seed, "prune": pruner.prune}
    told = Pruner(pruner.samples, pruner.schedule, **options)
    epochs = []
    for epoch in pruner.epochs():
        assert np.array_equal(told.begin_epoch().keep, epoch.keep)
        batches = []
        for ids, found in dataset:
            batches.append(found.numpy().tolist())
            told.observe(losses_of(found, epoch.number), found.numpy())
            pruner.observe(tf.constant(losses_of(found, epoch.number)), ids)
        assert sorted(flat(batches)) == np.flatnonzero(epoch.keep).tolist()
        told.end_epoch()
        epochs.append(batches)
    assert np.array_equal(pruner.hits, told.hits)
    assert np.array_equal(pruner.visits, told.visits)
    return epochs


def flat(batches: Any) -> list[int]:
    return [number for batch in batches for number in batch]


def one_epoch(pairs: tf.data.Dataset, pruner: Pruner, steps: int | None = None) -> None:
    """Train on the next epoch, or the first `steps` batches of it."""
    epoch = pruner.begin_epoch()
    for ids, _ in pairs.batch(32).take(-1 if steps is None else steps):
        pruner.observe(losses_of(ids, epoch.number), ids)
    pruner.end_epoch()
