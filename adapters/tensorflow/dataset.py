"""``wrap``: a dataset whose samples are numbered, and filtered by the mask of the open epoch."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf

from prunedata.adapters.tensorflow.checks import check_dataset, refuse_batches
from prunedata.counting.counts import Tally
from prunedata.errors import LossError
from prunedata.run.adapter import Adapter, Delivery
from prunedata.run.epoch import Epoch
from prunedata.run.identity import Prints, fingerprint
from prunedata.run.pruner import Pruner

CHUNK = 512  # samples that are filtered together: one by one, the filter would cost more than a cheap decoder
CHUNK_BYTES = 1 << 24
TEXT_BYTES = 1 << 18  # what a text is taken to have, as it is most often a file with an image
PASSES = 16  # most passes over a dataset in an epoch. A loop needs one; each look at the first batch begins another.


def samples_in(dataset: Any, *_: Any, **__: Any) -> int | None:
    """Return the number of samples in a dataset; None if TensorFlow does not know it."""
    if not isinstance(dataset, tf.data.Dataset):
        return None
    refuse_batches(dataset)  # their number would be taken for that of the samples
    samples = int(dataset.cardinality())
    return samples if samples >= 0 else None


def wrap(dataset: tf.data.Dataset, pruner: Pruner) -> tf.data.Dataset:
    """Wrap a dataset so that each pass delivers the samples that the epoch keeps, as ``(id, sample)``.

    Call it before ``map``, ``shuffle`` and ``batch``, which then receive pairs: after ``batch`` these are ``(ids,
    batch)``, with ids of int64, shape (n,), for ``pruner.observe(losses, ids)``.

    Parameters
    ----------
    dataset : tf.data.Dataset
        Of ``pruner.samples`` samples, each an element, not yet decoded, in the same order in every pass. A sample's
        id is its position.
    pruner : Pruner
        The run. Iterate inside ``for epoch in pruner.epochs():``.

    Returns
    -------
    tf.data.Dataset
        Traced once for the whole run. TensorFlow does not know its cardinality, which is ``pruner.current.kept``.

    Raises
    ------
    PrunedataError
        If the dataset is batched, endless, or of another number of samples, or if its order visibly changes from pass
        to pass. At the end of an epoch, if the dataset yielded pruned samples, or samples twice, because it was cached
        or repeated after ``wrap``.
    """
    check_dataset(dataset, pruner)
    pruner.trains_on(_prints_in(dataset), in_order=True)
    gate, spec = pruner.attach(Gate(pruner.samples)), dataset.element_spec
    if all(isinstance(part, tf.TensorSpec) and part.shape.is_fully_defined() for part in tf.nest.flatten(spec)):
        # Number chunks, not samples: that saves two stages for each sample.
        chunk = _chunk(spec)
        chunks = dataset.batch(chunk).enumerate()
        pruned = chunks.map(lambda number, samples: gate.select(number * chunk, samples)).unbatch()
    else:  # samples of various shapes cannot be stacked
        pruned = dataset.enumerate().filter(gate.is_kept)
    pruned.pruner = pruner  # for the adapter of Keras
    return pruned


def _prints_in(dataset: tf.data.Dataset) -> Prints:
    """Return a function that computes the fingerprints of the first samples; it begins anew at each id 0."""

    def prints(ids: Sequence[int]) -> list[str | None]:
        found: list[str | None] = []
        begins = [place for place, sample in enumerate(ids) if sample == 0]
        for first, end in pairwise([*begins, len(ids)]):
            found += map(fingerprint, dataset.take(end - first).as_numpy_iterator())
        return found

    return prints


def _chunk(spec: Any) -> int:
    parts = tf.nest.flatten(spec)
    size = sum(p.shape.num_elements() * (TEXT_BYTES if p.dtype == tf.string else p.dtype.size) for p in parts)
    return int(max(1, min(CHUNK, CHUNK_BYTES // max(size, 1))))


class Gate(Adapter):
    """The mask of the open epoch in a Variable, the functions of tf.data that read it, and how far they were read."""

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
