"""Shards of encoded images, 1,000 each: a tar file and a parquet file of the same images, and TFRecords of them."""

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import IterableDataset
from tqdm import tqdm

from benchmarks.common.data import Data

__all__ = ["Records", "Shards", "record_features", "write_records", "write_shards"]

SHARD, QUALITY = 1000, 90
ROWS = 128
"""Of a parquet file, read at once."""
Encoding = Literal["jpg", "png"]


@dataclass(frozen=True)
class Shards:
    """Shards in a folder. The id of a sample is its place: shard after shard, and within a shard as it lies.

    Attributes
    ----------
    folder : Path
    pixels : int
        Height and width of the images.
    samples : int
    """

    folder: Path
    pixels: int
    samples: int

    @property
    def tars(self) -> list[str]:
        """Members ``NNNN.jpg``, or ``.png``, and ``NNNN.cls``, with the same names in each shard."""
        return sorted(map(str, self.folder.glob("*.tar")))

    @property
    def tables(self) -> list[str]:
        """Parquet files with the columns ``uid``, ``image`` (bytes) and ``label``."""
        return sorted(map(str, self.folder.glob("*.parquet")))


class Records(IterableDataset[dict[str, Any]]):
    """The rows of parquet files, undecoded."""

    def __init__(self, tables: list[str]) -> None:
        self.tables = tables

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for table in self.tables:
            for batch in pq.ParquetFile(table).iter_batches(ROWS):
                yield from batch.to_pylist()


def write_shards(folder: Path, data: Data, pixels: int, samples: int, encoding: Encoding = "jpg") -> Shards:
    """Write the first ``samples`` training images of ``data``, at most all of them.

    ``jpg`` makes all of them RGB and loses a little; ``png`` keeps what is there, and scales nothing at 32 px.
    """
    images, labels = data.train.images.numpy()[:samples], data.train.labels[:samples].tolist()
    with tqdm(total=len(images), desc=f"encoding at {pixels} px", unit=" images", leave=False) as bar:
        for first in range(0, len(images), SHARD):
            encoded = [_encode(image, pixels, encoding) for image in images[first : first + SHARD]]
            shard = folder / f"{first // SHARD:05d}"
            _write_tar(shard.with_suffix(".tar"), encoded, labels[first : first + SHARD], encoding)
            _write_table(shard.with_suffix(".parquet"), first, encoded, labels[first : first + SHARD])
            bar.update(len(encoded))
    return Shards(folder, pixels, len(images))


def _encode(image: NDArray[np.uint8], pixels: int, encoding: Encoding) -> bytes:
    picture = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
    if pixels != picture.width:
        picture = picture.resize((pixels, pixels), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    if encoding == "png":
        picture.save(buffer, "PNG")
    else:
        picture.convert("RGB").save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


def _write_tar(path: Path, images: list[bytes], labels: list[int], encoding: Encoding) -> None:
    with tarfile.open(path, "w") as archive:
        for place, image in enumerate(images):
            for name, content in ((encoding, image), ("cls", str(labels[place]).encode())):
                info = tarfile.TarInfo(f"{place:04d}.{name}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))


def _write_table(path: Path, first: int, images: list[bytes], labels: list[int]) -> None:
    uids = list(range(first, first + len(images)))
    pq.write_table(pa.table({"uid": uids, "image": images, "label": labels}), path)


def write_records(shards: Shards) -> list[str]:
    """Write a TFRecord file beside each shard, of Examples with ``image`` (bytes) and ``label``; list them in order."""
    import tensorflow as tf  # noqa: PLC0415 (takes seconds, and others need it not)

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


def record_features() -> dict[str, Any]:
    """What :func:`write_records` writes of an image, as ``tf.io.parse_single_example`` takes it."""
    import tensorflow as tf  # noqa: PLC0415

    return {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
