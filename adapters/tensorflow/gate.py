"""TensorFlow's adapter for a run: the mask of the open epoch in a Variable, and how far a dataset was read."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from prunedata.counting.counts import Tally
from prunedata.errors import LossError
from prunedata.run.adapter import Adapter, Delivery
from prunedata.run.epoch import Epoch

__all__ = ["Gate"]

PASSES = 16
"""Most passes over a dataset in an epoch. A loop needs one; each look at the first batch begins another."""


class Gate(Adapter):
    """The mask of the open epoch in a Variable, and the functions that tf.data traces, which read it."""

    key = "tensorflow"
    by_weight = True
    delivery: Delivery

    def __init__(self, samples: int) -> None:
        with tf.device("CPU:0"):  # where tf.data runs
            self.mask = tf.Variable(tf.ones(samples, tf.bool), trainable=False)
            self.position, self.passes = (tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(2))
        self.samples = samples
        self._remaining = np.ones(samples, np.bool_)
        self.delivery = Delivery(-1)

    def begin_epoch(self, epoch: Epoch) -> None:
        """Assign the mask of the samples that remain in an epoch."""
        self.delivery = Delivery(epoch.number, delivered=0)
        self._remaining = epoch.remaining
        self.mask.assign(epoch.remaining)
        self.position.assign(0)
        self.passes.assign(0)

    def forget(self) -> None:
        """Forget what was delivered: another state was loaded."""
        self.delivery = Delivery(-1)

    def held_back(self) -> Iterable[tuple[Any, Any, Any]]:
        """Return no losses, and report how many samples were delivered."""
        self.delivery.delivered = self.delivered
        return ()

    def end_epoch(self, epoch: Epoch, tally: Tally) -> None:
        """Raise if samples were not selected by the mask, or came in two passes.

        A pruned sample may be observed, and a sample more than once. But a dataset must not give such samples
        unnoticed, as one with a cache does: then fewer samples were selected than an epoch has, or the dataset was
        begun more than once.
        """
        if self.delivery.epoch != epoch.number:  # the epoch was restored when nothing of it remained
            return
        pruned = int(np.count_nonzero(tally.visits[~epoch.keep]))
        twice = int(np.count_nonzero(tally.visits[epoch.keep] > 1))
        if pruned and self.delivered < np.count_nonzero(epoch.remaining):
            raise LossError(
                f"Expected the samples that epoch {epoch.number} keeps. Got {pruned} that are pruned, and the dataset "
                "was not read from its beginning to its end: is there a cache() after wrap(), or an iterator of an "
                "earlier epoch, or is the dataset iterated that you gave to wrap()? Cache before wrap()."
            )
        if twice and int(self.passes.numpy()) > 1:
            raise LossError(
                f"Expected each kept sample of epoch {epoch.number} once. Got {twice} of them more often, in several "
                "passes: is there a repeat() after wrap(), or was the epoch iterated twice?"
            )

    @property
    def delivered(self) -> int:
        """Number of samples that the last pass has delivered."""
        return int(np.count_nonzero(self._remaining[: int(self.position.numpy())]))

    # Each operation of these functions takes time whenever a pass begins, so they are few.

    def select(self, first: tf.Tensor, samples: Any) -> Any:
        """Return the kept samples of a chunk, with their ids. The first sample of the chunk has the id ``first``."""
        end = first + tf.shape(tf.nest.flatten(samples)[0], tf.int64)[0]
        kept = self._look_up(tf.range(first, end), first, end)
        places = tf.squeeze(tf.where(kept), 1)

        def gathered() -> Any:
            return tf.nest.map_structure(lambda part: tf.gather(part, places), samples)

        # Only if some are pruned, as gathering copies the samples.
        return first + places, tf.cond(tf.reduce_all(kept), lambda: samples, gathered)

    def is_kept(self, number: tf.Tensor, *_: Any) -> tf.Tensor:
        """Return whether a sample is kept."""
        return self._look_up(number, number, number + 1)

    def _look_up(self, ids: tf.Tensor, first: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        checks = [
            tf.debugging.Assert(
                end <= self.samples, [f"Expected a dataset of {self.samples} samples, as the Pruner has. Got more."]
            ),
            tf.debugging.Assert(
                self.passes.assign_add(tf.cast(first == 0, tf.int64)) <= PASSES,
                [
                    f"Expected one pass in each epoch. Got {PASSES} and more: is there a repeat() after wrap()? "
                    "Iterate inside `for epoch in pruner.epochs():`, once in each epoch."
                ],
            ),
        ]
        with tf.control_dependencies(checks):
            # Not self.mask[ids], which would copy the Variable each time.
            kept = tf.gather(self.mask, ids)
        self.position.assign(end)
        return kept
