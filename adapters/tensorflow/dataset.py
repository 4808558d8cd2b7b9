"""``wrap``: a dataset numbered, and filtered by what the gate lets pass."""

from typing import Any

import tensorflow as tf

from prunedata.adapters.tensorflow.checks import check_dataset
from prunedata.adapters.tensorflow.gate import Gate
from prunedata.run.pruner import Pruner

__all__ = ["samples_in", "wrap"]

CHUNK = 512
"""Samples that are filtered by one call: one at a time, a cheap decoder would cost less than the filter."""
CHUNK_BYTES = 1 << 24


def samples_in(given: Any, *_: Any, **__: Any) -> int | None:
    """Return how many samples a dataset says that it has; None if TensorFlow does not know it."""
    found = int(given.cardinality()) if isinstance(given, tf.data.Dataset) else -1
    return found if found >= 0 else None


def wrap(dataset: tf.data.Dataset, pruner: Pruner) -> tf.data.Dataset:
    """Wrap a dataset so that each pass delivers the samples that the epoch keeps, as ``(id, sample)``.

    Call it before ``map``, ``shuffle`` and ``batch``. These follow as ever, on pairs: after ``batch`` they are
    ``(ids, batch)``, with ids of int64, shape (n,), for ``pruner.observe(losses, ids)``.

    Parameters
    ----------
    dataset : tf.data.Dataset
        Of ``pruner.samples`` samples, one an element, not yet decoded, in the same order in every pass. A sample's
        id is its position.
    pruner : Pruner
        The run. Iterate inside ``for epoch in pruner.epochs():``.

    Returns
    -------
    tf.data.Dataset
        Traced once for the whole run. Its cardinality is unknown to TensorFlow; ``pruner.current.kept`` says it.

    Raises
    ------
    PrunedataError
        If the dataset is batched, endless, of another number of samples, or if its order is not the same in every
        pass, as far as that can be seen. At the end of an epoch in which the dataset gave pruned samples, or samples
        twice: it was cached or repeated behind ``wrap``. What you observe beside it, or twice in one pass, is counted,
        as ``pruner.observe`` says.
    """
    check_dataset(dataset, pruner)
    gate, spec = pruner.attach(Gate(pruner.samples)), dataset.element_spec
    if all(isinstance(part, tf.TensorSpec) and part.shape.is_fully_defined() for part in tf.nest.flatten(spec)):
        # Chunks are numbered, not samples: that spares each sample two stages.
        chunk = _chunk(spec)
        chunks = dataset.batch(chunk).enumerate()
        pruned = chunks.map(lambda number, samples: gate.pass_on(number * chunk, samples)).unbatch()
    else:  # samples of various shapes cannot be stacked
        pruned = dataset.enumerate().filter(gate.is_kept)
    pruned.pruner = pruner  # for the adapter of Keras
    return pruned


def _chunk(spec: Any) -> int:
    size = sum(part.shape.num_elements() * part.dtype.size for part in tf.nest.flatten(spec) if part.dtype != tf.string)
    return int(max(1, min(CHUNK, CHUNK_BYTES // max(size, 1))))
