"""TensorFlow: ``prune(dataset, pruner)`` drops pruned samples before they are parsed and decoded.

A ``tf.data`` pipeline is traced once, and a mask that it sees as an array would stay that of the first epoch. So the
mask is a Variable, in which each epoch that begins writes its own.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

try:
    import tensorflow as tf
except ImportError as error:
    raise ImportError("prunedata.adapters.tensorflow needs TensorFlow: pip install 'prunedata[tensorflow]'") from error

from prunedata.adapters._tensorflow_checks import check_dataset
from prunedata.errors import LossError, NotInEpoch
from prunedata.run.counts import Tally
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.types import Array

__all__ = ["prune"]

Exchange = Callable[[Tally, dict[str, Array]], None]
CHUNK = 512
"""Samples that are filtered by one call: one at a time, a cheap decoder would cost less than the filter."""
CHUNK_BYTES = 1 << 24
PASSES = 16
"""How often a dataset may be begun in an epoch. A loop needs one pass, and peeps at the first batch are passes too."""


def prune(dataset: tf.data.Dataset, pruner: Pruner) -> tf.data.Dataset:
    """Wrap a dataset so that each pass delivers the samples that the epoch keeps, as ``(id, sample)``.

    Call it before ``map``, ``shuffle`` and ``batch``. These follow as ever, on pairs: after ``batch`` they are
    ``(ids, batch)``, with ids of int64, shape (n,), for ``pruner.observe(ids, losses)``.

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
        twice: it was cached or repeated behind ``prune``. What you observe beside it, or twice in one pass, is counted,
        as ``pruner.observe`` says.
    """
    check_dataset(dataset, pruner)
    gate, spec = _gate_of(pruner), dataset.element_spec
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


def _gate_of(pruner: Pruner) -> "_Gate":
    """The gate that the pruner has, or a new one."""
    for listener in pruner.listeners:
        if isinstance(gate := getattr(listener, "__self__", None), _Gate):
            return gate
    gate = _Gate(pruner.samples)
    pruner.listeners.append(gate.open)
    pruner.sources.append(lambda: pruner.note_delivered(gate.passed))
    pruner.exchange = _refuse_strays(pruner, gate, pruner.exchange)
    with suppress(NotInEpoch):
        gate.open(pruner.current)
    return gate


class _Gate:
    """The open epoch in Variables, and the functions that tf.data traces, which read them."""

    def __init__(self, samples: int) -> None:
        with tf.device("CPU:0"):  # where tf.data runs
            self.mask = tf.Variable(tf.ones(samples, tf.bool), trainable=False)
            self.position, self.passes = (tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(2))
        self.samples = samples
        self._remaining = np.ones(samples, np.bool_)

    def open(self, epoch: Epoch) -> None:
        self._remaining = epoch.remaining
        self.mask.assign(epoch.remaining)
        self.position.assign(0)
        self.passes.assign(0)

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
                end <= self.samples, [f"Expected a dataset of {self.samples} samples, as the Pruner. Got more."]
            ),
            tf.debugging.Assert(
                self.passes.assign_add(tf.cast(first == 0, tf.int64)) <= PASSES,
                [
                    f"Expected one pass in each epoch. Got {PASSES} and more: is there a repeat() behind prune()? "
                    "Iterate inside `for epoch in pruner.epochs():`, once in each epoch."
                ],
            ),
        ]
        with tf.control_dependencies(checks):
            # Not self.mask[ids]: that would copy the Variable each time.
            kept = tf.gather(self.mask, ids)
        self.position.assign(end)
        return kept


def _refuse_strays(pruner: Pruner, gate: _Gate, before: Exchange | None) -> Exchange:
    """Look at the end of each epoch for samples that did not come through the gate, or came in two passes.

    A sample may be observed though it is pruned, and more than once: the core counts it. What is refused is a
    dataset that gives such samples, as a cache does, for it would train on them in silence. The two are told apart by
    what the gate saw: the samples that it passed on are too few for an epoch, or it was passed more than once.
    """

    def check(tally: Tally, arrays: dict[str, Array]) -> None:
        if before is not None:
            before(tally, arrays)
        epoch, seen = pruner.current, tally.visits
        pruned, twice = (int(np.count_nonzero(seen[~epoch.keep])), int(np.count_nonzero(seen[epoch.keep] > 1)))
        if pruned and gate.passed < np.count_nonzero(epoch.remaining):
            raise LossError(
                f"Expected the samples that epoch {epoch.number} keeps. Got {pruned} that are pruned, and the dataset "
                "was not read from its beginning to its end: is there a cache() behind prune(), or an iterator that "
                "was made in an earlier epoch? Cache before prune()."
            )
        if twice and int(gate.passes.numpy()) > 1:
            raise LossError(
                f"Expected each kept sample of epoch {epoch.number} once. Got {twice} of them more often, in several "
                "passes: is there a repeat() behind prune(), or was the epoch iterated twice?"
            )

    return check
