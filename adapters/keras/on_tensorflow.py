"""Record losses in TensorFlow's graphs: ids and losses in Variables, which are read on demand."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from prunedata.adapters.keras.recorders import UNSEEN, StepRecorder, two_likeliest, weights_in
from prunedata.counting.batches import NOTHING
from prunedata.counting.counts import Tally
from prunedata.errors import LossError
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner


class GraphRecorder(StepRecorder):
    """The losses of an epoch in the order in which they came.

    No step calls Python, so that it may be compiled by XLA, and several may run in one call.
    """

    def __init__(self, pruner: Pruner) -> None:
        super().__init__(pruner)
        self._room = pruner.samples
        dtype = tf.float64 if keras.config.floatx() == "float64" else tf.float32

        def room(of: Any) -> Any:
            # One place more takes what does not fit: XLA would leave it out in silence.
            return tf.Variable(tf.zeros(self._room + 1, of), trainable=False)

        self._ids, self._losses, self._batches = room(tf.int64), room(dtype), room(tf.int64)
        self._said: Any = None  # what logits say, once some came
        self._labels: Any = None  # once some came
        self._classes = 0
        self._fill, self._batch = (tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(2))
        if pruner.is_weighed:
            self._weights, self._counting = (tf.Variable(tf.ones(pruner.samples), trainable=False) for _ in range(2))
            self._applied = tf.Variable(0, dtype=tf.int64, trainable=False)

    def begin_epoch(self, epoch: Epoch) -> None:
        """Begin an epoch, or go on with it."""
        super().begin_epoch(epoch)
        if self._pruner.is_weighed:
            weights, counting = weights_in(epoch.detached(), np.arange(epoch.keep.size))
            self._weights.assign(weights)
            self._counting.assign(counting.astype(np.float32))
            self._applied.assign(0)

    def end_epoch(self, epoch: Epoch, tally: Tally) -> None:
        """Return whether the steps of an epoch have applied the weights of its losses."""
        if self._pruner.is_weighed and self._applied.numpy():
            epoch.apply_weights()

    def forget(self) -> None:
        """Drop the losses that are not recorded yet."""
        self._fill.assign(0)

    def weights_of(self, ids: Any) -> Any:
        """Return what the losses of a batch weigh."""
        if not self._pruner.is_weighed:
            return None
        self._applied.assign(1)
        return tf.gather(self._weights, ids), tf.gather(self._counting, ids) > 0

    def add(self, ids: Any, losses: Any, logits: Any = None, labels: Any = None) -> None:
        """Append a batch."""
        said, labels = None, labels if self._takes_labels else None
        if logits is not None:
            said, self._classes = two_likeliest(logits)
        with tf.init_scope():  # a step is traced, and a Variable is no part of it
            if said is not None and self._said is None:
                self._said = tf.Variable(tf.fill([self._room + 1], NOTHING), trainable=False)
            if labels is not None and self._labels is None:
                self._labels = tf.Variable(tf.fill([self._room + 1], UNSEEN), trainable=False)
        ids, losses = tf.convert_to_tensor(ids, tf.int64), tf.cast(losses, self._losses.dtype)
        ids.shape.assert_is_compatible_with(losses.shape)
        # Without them a step for which there is no data left could count up before it fails: if the size of a batch
        # is fixed, nothing of the data decides by how much.
        with tf.control_dependencies([ids, losses]):
            size = tf.shape(ids, tf.int64)[0]
            places = tf.minimum(self._fill + tf.range(size), self._room)
            batches = tf.fill([size], self._batch.read_value())
            for variable, values in ((self._ids, ids), (self._losses, losses), (self._batches, batches)):
                variable.scatter_update(tf.IndexedSlices(values, places))
            for variable, came, none in ((self._said, said, NOTHING), (self._labels, labels, UNSEEN)):
                if variable is not None:
                    values = tf.fill([size], none) if came is None else tf.cast(came, tf.int32)
                    variable.scatter_update(tf.IndexedSlices(values, places))
            self._fill.assign_add(size)
            self._batch.assign_add(1)

    @property
    def count(self) -> int:
        """Losses since the epoch was begun."""
        return self._handed_over + int(self._fill.numpy())

    def held_back(self) -> Iterator[tuple[Any, ...]]:
        """Hand over everything, as it came."""
        fill = int(self._fill.numpy())
        if not fill:
            return
        self._fill.assign(0)
        self._handed_over += fill
        if fill > self._room:
            raise LossError(
                f"Expected at most {self._room} losses in an epoch, one for each sample. Got {fill}: "
                "is there a repeat() behind wrap()?"
            )
        ids, losses, batches = (each.numpy()[:fill] for each in (self._ids, self._losses, self._batches))
        sizes = np.diff([0, *(np.flatnonzero(np.diff(batches)) + 1), fill])
        if self._labels is not None:
            self._see_labels(ids, self._labels.numpy()[:fill])
        if self._said is None:
            yield ids, losses, sizes
            return
        self._pruner.expect_classes(self._classes)
        yield ids, losses, sizes, self._said.numpy()[:fill]
