"""``wrap``: a dataset whose samples are numbered, and filtered by the mask of the open epoch."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import tensorflow as tf

from prunedata.adapters.tensorflow.checks import check_dataset
from prunedata.adapters.tensorflow.gate import Gate
from prunedata.run.identity import Prints, fingerprint
from prunedata.run.pruner import Pruner

__all__ = ["samples_in", "wrap"]

CHUNK = 512
"""Samples that are filtered together: one by one, the filter would cost more than a cheap decoder."""
CHUNK_BYTES = 1 << 24


def samples_in(dataset: Any, *_: Any, **__: Any) -> int | None:
    """Return the number of samples in a dataset; None if TensorFlow does not know it."""
    samples = int(dataset.cardinality()) if isinstance(dataset, tf.data.Dataset) else -1
    return samples if samples >= 0 else None


def wrap(dataset: tf.data.Dataset, pruner: Pruner) -> tf.data.Dataset:
    """Wrap a dataset so that each pass delivers the samples that the epoch keeps, as ``(id, sample)``.

    Call it before ``map``, ``shuffle`` and ``batch``, which then get pairs: after ``batch`` these are ``(ids, batch)``,
    with ids of int64, shape (n,), for ``pruner.observe(losses, ids)``.

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
        If the dataset is batched, endless, of another number of samples, or if its order is not the same in every
        pass, as far as that can be found out. At the end of an epoch in which the dataset gave pruned samples, or
        samples twice, as it was cached or repeated after ``wrap``.
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
    size = sum(part.shape.num_elements() * part.dtype.size for part in tf.nest.flatten(spec) if part.dtype != tf.string)
    return int(max(1, min(CHUNK, CHUNK_BYTES // max(size, 1))))
