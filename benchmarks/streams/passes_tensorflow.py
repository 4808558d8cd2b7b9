"""The same passes by tf.data, over TFRecord files of the same images."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from benchmarks.common.shards import Shards, record_features, write_records
from benchmarks.streams.passes import BATCH, Batches, Passes
from prunedata import Pruner
from prunedata.adapters.tensorflow import wrap

__all__ = ["over_records", "over_records_in_one_thread"]

FEATURES = record_features()


def over_records(shards: Shards) -> Passes:
    """tf.data as its guide has it: shuffle, parse and decode in parallel, batch, prefetch, all options as they are."""
    parallel = partial(tf.data.Dataset.map, num_parallel_calls=tf.data.AUTOTUNE)
    return _over(write_records(shards), parallel, lambda batches: batches.prefetch(tf.data.AUTOTUNE), reads_ahead=True)


def over_records_in_one_thread(shards: Shards) -> Passes:
    """The same with nothing in parallel, nothing read ahead and nothing optimised: each stage at its own cost."""
    options = _one_thread()
    return _over(
        write_records(shards), tf.data.Dataset.map, lambda batches: batches.with_options(options), reads_ahead=False
    )


def _over(
    files: list[str], mapped: Callable[[Any, Any], Any], ended: Callable[[Any], Any], *, reads_ahead: bool
) -> Passes:
    def raw() -> Any:
        return tf.data.TFRecordDataset(files)

    def shuffled(dataset: Any, decode: Callable[..., Any]) -> Any:
        return mapped(dataset.shuffle(1000, seed=1), decode)

    def load(samples: Any) -> Batches:
        dataset = ended(samples.batch(BATCH))
        return lambda: dataset

    def numbered(number: Any, record: Any) -> Any:
        return number, _decode(record)

    def pruned(pruner: Pruner) -> Batches:
        make = load(shuffled(wrap(raw(), pruner), numbered))

        def begun() -> Any:
            pruner.begin_epoch()  # anew: wrap() allows few passes in an epoch
            return make()

        return begun

    def after(keep: NDArray[np.bool_]) -> Batches:
        mask = tf.constant(keep)

        def kept(number: Any, _: Any) -> Any:
            return tf.gather(mask, number)

        return load(shuffled(raw().enumerate(), numbered).filter(kept))

    return Passes(
        plain=load(shuffled(raw(), _decode)),
        pruned=pruned,
        after_decode=after,
        numbered=load(shuffled(raw().enumerate(), numbered)),
        reads_ahead=reads_ahead,
    )


def _decode(record: Any) -> Any:
    """Parse and decode a record: floats from 0 to 1, shape (height, width, 3)."""
    found = tf.io.parse_single_example(record, FEATURES)
    return tf.cast(tf.io.decode_jpeg(found["image"], channels=3), tf.float32) / 255, found["label"]


def _one_thread() -> Any:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    # Both would work on in other threads, while the time of another pass is taken: tf.data prefetches, and fuses map
    # and batch into what does.
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    options.autotune.enabled = False
    return options
