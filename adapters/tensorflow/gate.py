"""The gate through which a run's datasets pass: the mask of the open epoch, and what came by."""

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
"""How often a dataset may be begun in an epoch. A loop needs one pass, and peeps at the first batch are passes too."""


class Gate(Adapter):
    """The open epoch in Variables, and the functions that tf.data traces, which read them. A run has one gate."""

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
        """Let the samples pass that remain of an epoch."""
        self.delivery = Delivery(epoch.number, delivered=0)
        self._remaining = epoch.remaining
        self.mask.assign(epoch.remaining)
        self.position.assign(0)
        self.passes.assign(0)

    def forget(self) -> None:
        """Forget what was said of an epoch: the run stands elsewhere now."""
        self.delivery = Delivery(-1)

    def held_back(self) -> Iterable[tuple[Any, Any, Any]]:
        """No losses. Tell how many samples have passed."""
        self.delivery.delivered = self.passed
        return ()

    def end_epoch(self, epoch: Epoch, tally: Tally) -> None:
        """Refuse samples that did not come through the gate, or came in two passes.

        A sample may be observed though it is pruned, and more than once: the core counts it. What is refused is a
        dataset that gives such samples, as a cache does, for it would train on them in silence. The two are told
        apart by what the gate saw: the samples that it passed on are too few for an epoch, or it was passed more than
        once.
        """
        if self.delivery.epoch != epoch.number:  # restored when nothing of it was left
            return
        pruned = int(np.count_nonzero(tally.visits[~epoch.keep]))
        twice = int(np.count_nonzero(tally.visits[epoch.keep] > 1))
        if pruned and self.passed < np.count_nonzero(epoch.remaining):
            raise LossError(
                f"Expected the samples that epoch {epoch.number} keeps. Got {pruned} that are pruned, and the dataset "
                "was not read from start to end: is there a cache() after wrap(), an iterator from an earlier epoch, "
                "or do you iterate the dataset before wrap()? Cache before wrap()."
            )
        if twice and int(self.passes.numpy()) > 1:
            raise LossError(
                f"Expected each kept sample of epoch {epoch.number} once. Got {twice} of them more often, in several "
                "passes: is there a repeat() behind wrap(), or was the epoch iterated twice?"
            )

    @property
    def passed(self) -> int:
        """How many samples the last pass has passed on."""
        return int(np.count_nonzero(self._remaining[: int(self.position.numpy())]))

    # Each operation of these functions is paid for whenever a pass begins, so they are few.

    def pass_on(self, first: tf.Tensor, samples: Any) -> Any:
        """Leave the pruned samples of a chunk out. Its first has the id ``first``."""
        end = first + tf.shape(tf.nest.flatten(samples)[0], tf.int64)[0]
        kept = self._look_up(tf.range(first, end), first, end)
        places = tf.squeeze(tf.where(kept), 1)

        def gathered() -> Any:
            return tf.nest.map_structure(lambda part: tf.gather(part, places), samples)

        # Gathering copies them.
        return first + places, tf.cond(tf.reduce_all(kept), lambda: samples, gathered)

    def is_kept(self, number: tf.Tensor, *_: Any) -> tf.Tensor:
        """Whether a sample is kept."""
        return self._look_up(number, number, number + 1)

    def _look_up(self, ids: tf.Tensor, first: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        checks = [
            tf.debugging.Assert(
                end <= self.samples, [f"Expected a dataset of {self.samples} samples, like the Pruner. Got more."]
            ),
            tf.debugging.Assert(
                self.passes.assign_add(tf.cast(first == 0, tf.int64)) <= PASSES,
                [
                    f"Expected one pass in each epoch. Got {PASSES} and more: is there a repeat() behind wrap()? "
                    "Iterate inside `for epoch in pruner.epochs():`, once in each epoch."
                ],
            ),
        ]
        with tf.control_dependencies(checks):
            # Not self.mask[ids]: that would copy the Variable each time.
            kept = tf.gather(self.mask, ids)
        self.position.assign(end)
        return kept
