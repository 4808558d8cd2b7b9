"""TFRecord files of the images of shards, for tf.data."""

from pathlib import Path

import pyarrow.parquet as pq
import tensorflow as tf

from benchmarks.common.shards import Shards

__all__ = ["FEATURES", "write_records"]

FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def write_records(shards: Shards) -> list[str]:
    """Write a TFRecord file beside each shard, of Examples with ``image`` (bytes) and ``label``; list them in order."""
    files = []
    for table in shards.tables:
        files.append(str(Path(table).with_suffix(".tfrecord")))
        with tf.io.TFRecordWriter(files[-1]) as writer:
            for row in pq.read_table(table).to_pylist():
                feature = {
                    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[row["image"]])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[row["label"]])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    return files
