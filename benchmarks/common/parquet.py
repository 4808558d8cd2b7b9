"""Read a folder of images in the parquet layout of the Hugging Face hub."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from tqdm import tqdm

__all__ = ["SIZE", "Arrays", "DataFolderError", "read_folder"]

SIZE = 32
"""Height and width of every image, in pixels; others are scaled to it."""
IMAGE_COLUMNS = ("img", "image")
LABEL_COLUMNS = ("label", "labels", "fine_label")

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Images of shape (samples, channels, 32, 32), and their labels."""


class DataFolderError(ValueError):
    """A folder that is not what :func:`read_folder` reads."""


def read_folder(folder: Path, progress: bool = False) -> tuple[Arrays, Arrays]:
    """Read training and test split of a folder, and decode every image once.

    `folder`, or the folder `data` in it, holds ``train-*.parquet`` and ``test-*.parquet``, with a column
    ``img`` or ``image`` (a struct of bytes and path) and an integer column ``label``, ``labels`` or
    ``fine_label``. Images are returned as uint8 of shape (samples, channels, 32, 32), labels as int64.
    If the first training image is grey all become grey, else all become RGB.

    Raises
    ------
    DataFolderError
        If files, columns, labels or images are not as described; the message says which.
    """
    splits = {split: _files(folder, split) for split in ("train", "test")}
    mode = "RGB"
    for first, _ in _rows(splits["train"][0]):
        mode = "L" if _decode(first, None, splits["train"][0]).shape[0] == 1 else "RGB"
        break
    train, test = (_read(files, mode, f"decoding {split}", progress) for split, files in splits.items())
    known, highest = int(train[1].max()), int(test[1].max())
    if highest > known:
        raise DataFolderError(f"Expected test labels from 0 to {known}, as in training. Got {highest} in {folder}.")
    return train, test


def _files(folder: Path, split: str) -> list[Path]:
    files = sorted(folder.glob(f"{split}-*.parquet")) or sorted((folder / "data").glob(f"{split}-*.parquet"))
    if not files:
        raise DataFolderError(
            f"Expected files {split}-*.parquet in {folder} or in its folder data. "
            f"Got {'none there' if folder.is_dir() else 'a path that is no folder'}; "
            "point to a data set in the parquet layout of the Hugging Face hub."
        )
    return files


def _open(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataFolderError(f"Expected a parquet file at {file}. Got: {error}") from error


def _column(schema: pa.Schema, names: tuple[str, ...], file: Path) -> str:
    for name in names:
        if name in schema.names:
            return name
    found = ", ".join(schema.names)
    raise DataFolderError(f"Expected a column named {' or '.join(names)} in {file}. Got {found}.")


def _rows(file: Path) -> Iterator[tuple[bytes | None, int | None]]:
    """Yield the encoded image and the label of every row, holding a thousand rows at a time."""
    with _open(file) as parquet:
        schema = parquet.schema_arrow
        image, label = _column(schema, IMAGE_COLUMNS, file), _column(schema, LABEL_COLUMNS, file)
        kind = schema.field(image).type
        if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
            raise DataFolderError(f"Expected column {image} of {file} to be a struct of bytes and path. Got {kind}.")
        if not pa.types.is_integer(schema.field(label).type):
            raise DataFolderError(
                f"Expected column {label} of {file} to hold integers. Got {schema.field(label).type}."
            )
        for batch in parquet.iter_batches(1000, columns=[image, label]):
            encoded = batch.column(image).field("bytes").to_pylist()
            yield from zip(encoded, batch.column(label).to_pylist(), strict=True)


def _decode(encoded: bytes | None, mode: str | None, file: Path) -> NDArray[np.uint8]:
    """Return one image as uint8 of shape (channels, 32, 32); without a mode, grey stays grey."""
    if encoded is None:
        raise DataFolderError(f"Expected every image of {file} to be stored as bytes. Got one without.")
    try:
        with Image.open(io.BytesIO(encoded)) as image:
            picture = image.convert(mode or ("L" if image.mode in ("1", "L") else "RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise DataFolderError(f"Expected images that Pillow can decode in {file}. Got: {error}") from error
    if picture.size != (SIZE, SIZE):
        picture = picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    pixels = np.asarray(picture, dtype=np.uint8)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _read(files: list[Path], mode: str, title: str, progress: bool) -> Arrays:
    total = sum(_open(file).metadata.num_rows for file in files)
    images = np.empty((total, 1 if mode == "L" else 3, SIZE, SIZE), np.uint8)
    labels = np.empty(total, np.int64)
    position = 0
    with tqdm(total=total, desc=title, unit=" images", disable=not progress, leave=False) as bar:
        for file in files:
            for encoded, label in _rows(file):
                if label is None or label < 0:
                    raise DataFolderError(f"Expected every label of {file} to be 0 or more. Got {label}.")
                images[position], labels[position] = _decode(encoded, mode, file), label
                position += 1
                bar.update()
    if total == 0:
        raise DataFolderError(f"Expected at least one image in {', '.join(map(str, files))}. Got none.")
    return images, labels
