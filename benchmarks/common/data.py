"""Image data sets in memory: scikit-learn's digits, or a folder of parquet files as the hub lays them out."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset
from tqdm import tqdm

__all__ = [
    "SIZE",
    "Arrays",
    "Data",
    "DataFolderError",
    "ImageSet",
    "crop_and_flip",
    "digits",
    "folder",
    "read_folder",
    "with_wrong_labels",
]

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


class ImageSet(Dataset[tuple[Tensor, int]]):
    """Decoded images and labels, held in memory and normalised when they are fetched.

    Parameters
    ----------
    images : uint8 tensor, shape (samples, channels, 32, 32)
        Kept as bytes: as floats, 50,000 colour images would take 600 MB.
    labels : int64 tensor, shape (samples,)
    mean, std : float tensors, shape (channels, 1, 1)
        What is subtracted from the images and what they are divided by, on the scale 0 to 255.
    """

    def __init__(self, images: Tensor, labels: Tensor, mean: Tensor, std: Tensor) -> None:
        self.images, self.labels, self.mean, self.std = images, labels, mean, std

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, int]]:
        """Fetch a whole batch at once, as DataLoader prefers: one gather for all samples."""
        images, labels = self.batch(torch.as_tensor(indices, dtype=torch.int64))
        return list(zip(images.unbind(), labels.tolist(), strict=True))

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the images at `indices` as float32, normalised, and their labels."""
        return self.images[indices].float().sub_(self.mean).div_(self.std), self.labels[indices]


@dataclass(frozen=True)
class Data:
    """A training set, a test set, and what a network must know of them."""

    name: str
    train: ImageSet
    test: ImageSet
    channels: int
    classes: int


def digits(noise: float = 0.0) -> Data:
    """Return the 1,797 real 8x8 images embedded in scikit-learn, scaled to 32x32.

    1,437 are to train on and 360 to test with; the split is the same in every run.
    """
    from sklearn.datasets import load_digits  # noqa: PLC0415 (takes a second of each process that gets data sent)

    bunch = load_digits()
    small = torch.from_numpy(bunch.images).float()[:, None] * (255 / 16)
    images = F.interpolate(small, size=(SIZE, SIZE), mode="bilinear").round().byte().numpy()
    labels = bunch.target.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[:1437], order[1437:]
    return _data("digits", (images[train], labels[train]), (images[test], labels[test]), noise)


def folder(path: Path, noise: float = 0.0, progress: bool = False) -> Data:
    """Return the data set of a folder that :func:`benchmarks.common.shards.read_folder` can read."""
    train, test = read_folder(path, progress)
    return _data(path.resolve().name, train, test, noise)


def with_wrong_labels(labels: NDArray[np.int64], classes: int, share: float) -> NDArray[np.int64]:
    """Return a copy in which round(share * samples) labels, drawn with a fixed seed, are wrong at random."""
    if not 0 <= share <= 1:
        raise ValueError(f"Expected a share of wrong labels from 0 to 1. Got {share}.")
    rng = np.random.default_rng(20180101)
    wrong = rng.permutation(len(labels))[: round(share * len(labels))]
    noisy = labels.copy()
    # A shift by 1 to classes - 1 never lands on the true class: the share asked for is the share wrong.
    noisy[wrong] = (noisy[wrong] + rng.integers(1, max(classes, 2), len(wrong))) % classes
    return noisy


def _data(name: str, train: Arrays, test: Arrays, noise: float) -> Data:
    """Wrap the arrays of two splits; both are normalised by the training images' mean and deviation."""
    classes, channels = int(train[1].max()) + 1, train[0].shape[1]
    pixels = [train[0][:, channel] for channel in range(channels)]
    mean = torch.tensor([float(p.mean()) for p in pixels]).reshape(-1, 1, 1)
    std = torch.tensor([max(float(p.std(dtype=np.float32)), 1.0) for p in pixels]).reshape(-1, 1, 1)
    labels = with_wrong_labels(train[1], classes, noise)
    train_set = ImageSet(torch.from_numpy(train[0]), torch.from_numpy(labels), mean, std)
    test_set = ImageSet(torch.from_numpy(test[0]), torch.from_numpy(test[1]), mean, std)
    return Data(name, train_set, test_set, channels, classes)


def crop_and_flip(images: Tensor, generator: torch.Generator, padding: int = 4) -> Tensor:
    """Return every image shifted by up to `padding` pixels each way and, with probability 1/2, mirrored.

    Parameters
    ----------
    images : tensor of any dtype, shape (batch, channels, height, width), on any device
        Left as they are. What a shift uncovers becomes 0: black in bytes, the training set's mean colour in
        images already normalised. The usual CIFAR recipe pads before it normalises, that is with black.
    generator : torch.Generator
        Gives a number for each image, whatever their dtype and device: equal states give equal shifts. On the images'
        own device nothing waits; a CPU generator gives a GPU the numbers of a CPU.
    padding : int
        Pixels of padding on each of the four sides.

    Returns
    -------
    tensor of the images' dtype and shape, on their device, new; channels last if they are, else contiguous

    Raises
    ------
    ValueError
        If `images` does not have four dimensions or `padding` is negative.
    """
    if images.dim() != 4 or padding < 0:
        raise ValueError(
            "Expected images of shape (batch, channels, height, width) and a padding of 0 or more. "
            f"Got the shape {tuple(images.shape)} and a padding of {padding}."
        )
    batch, channels, height, width = images.shape
    pixels = _pixels(images, generator, padding)
    # All channels share one index, without a copy of it. 128 colour images take 0.45 ms of a CPU core; indexing
    # windows of the padded images and mirroring half of them took 0.75, indexing with four tensors 2.6.
    index = pixels.reshape(batch, 1, height * width).expand(batch, channels, height * width)
    padded = F.pad(images, (padding, padding, padding, padding))
    last = images.is_contiguous(memory_format=torch.channels_last)
    result = torch.empty_like(images, memory_format=torch.channels_last if last else torch.contiguous_format)
    # Rows and columns lie one after the other in both formats, so that this writes into the result itself.
    torch.gather(padded.flatten(2), 2, index, out=result.view(batch, channels, height * width))
    return result


def _pixels(images: Tensor, generator: torch.Generator, padding: int) -> Tensor:
    """Draw which pixel of its padded image each pixel comes from, shape (batch, height, width)."""
    batch, _, height, width = images.shape
    span = 2 * padding + 1
    # Flip and both shifts from one number, so that one copy takes them to a GPU.
    draws = torch.randint(2 * span * span, (batch, 1), generator=generator, device=generator.device)
    draws = draws.to(images.device, non_blocking=True)
    flip, shift = draws % 2 == 1, draws // 2
    down, right = shift // span, shift % span
    column = torch.arange(width, device=images.device)
    columns = torch.where(flip, width - 1 - column, column) + right
    rows = torch.arange(height, device=images.device) + down
    return rows[:, :, None] * (width + 2 * padding) + columns[:, None, :]
