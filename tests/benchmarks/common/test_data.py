"""Data sets: folders of images, digits, and labels made wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.common.data import digits, folder, with_wrong_labels
from benchmarks.common.parquet import DataFolderError, read_folder
from tests.benchmarks.images import encoded, pictures, write

IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})


@pytest.mark.parametrize("kind", ["png", "jpeg"])
@pytest.mark.parametrize("place", ["", "data"])
@pytest.mark.parametrize("names", [("img", "label"), ("image", "labels"), ("image", "fine_label")])
def test_folder_is_read_in_order(kind: str, place: str, names: tuple[str, str], tmp_path: Path) -> None:
    first, second, test = pictures(3, seed=1), pictures(2, seed=2), pictures(2, seed=3)
    for name, images, labels in (
        ("train-00000-of-00002", first, [2, 0, 1]),
        ("train-00001-of-00002", second, [1, 0]),
        ("test-00000-of-00001", test, [1, 2]),
    ):
        rows = [encoded(p, kind) for p in images]
        write(tmp_path / place / f"{name}.parquet", *names, images=rows, labels=labels)
    (train_images, train_labels), (test_images, test_labels) = read_folder(tmp_path)
    assert train_labels.tolist() == [2, 0, 1, 1, 0]
    assert test_labels.tolist() == [1, 2]
    wanted = np.stack([p.transpose(2, 0, 1) for p in [*first, *second]])
    assert train_images.dtype == np.uint8
    assert train_images.shape == (5, 3, 32, 32)
    assert np.abs(train_images.astype(int) - wanted).max() <= (0 if kind == "png" else 6)
    assert test_images.shape == (2, 3, 32, 32)


def test_grey_images_of_another_size_are_scaled(tmp_path: Path) -> None:
    for split in ("train", "test"):
        images = [encoded(p, "png") for p in pictures(4, channels=1, size=28)]
        write(tmp_path / f"{split}-0.parquet", images=images)
    read = folder(tmp_path)
    assert read.name == tmp_path.name
    assert (read.channels, read.classes) == (1, 3)
    assert read.train.images.shape == (4, 1, 32, 32)
    assert [int(image[0, 0, 0]) for image in read.train.images] == [int(p[0, 0]) for p in pictures(4, 1, 28)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"image": "picture"}, "column named img or image .* Got picture, label"),
        ({"label": "class"}, "column named label or labels or fine_label"),
        ({"labels": [0.5, 1.0, 2.0, 0.0]}, "to hold integers. Got double"),
        ({"labels": [0, 1, -1, 2]}, "to be 0 or more. Got -1"),
        ({"labels": [0, 1, None, 2]}, "to be 0 or more. Got None"),
        ({"images": [b"1", b"2", b"3", b"4"]}, "struct of bytes and path. Got binary"),
        (
            {"images": [{"bytes": None, "path": "a.png"}] * 4},
            "stored as bytes. Got one without",
        ),
        ({"images": [{"bytes": b"no image", "path": ""}] * 4}, "images that Pillow can decode"),
        ({"images": pa.array([], IMAGE), "labels": pa.array([], pa.int64())}, "at least one image"),
    ],
)
def test_what_a_folder_lacks_is_said(columns: dict[str, Any], message: str, tmp_path: Path) -> None:
    write(tmp_path / "train-0.parquet", **columns)
    write(tmp_path / "test-0.parquet")
    with pytest.raises(DataFolderError, match=message):
        read_folder(tmp_path)


def test_missing_and_broken_files_are_said(tmp_path: Path) -> None:
    write(tmp_path / "train-0.parquet")
    with pytest.raises(DataFolderError, match=r"Expected files test-\*.parquet"):
        read_folder(tmp_path)
    (tmp_path / "test-0.parquet").write_bytes(b"not parquet")
    with pytest.raises(DataFolderError, match="Expected a parquet file"):
        read_folder(tmp_path)
    write(tmp_path / "test-0.parquet", labels=[0, 1, 2, 9])
    with pytest.raises(DataFolderError, match=r"labels from 0 to 2, as in training\. Got 9"):
        read_folder(tmp_path)


@given(st.integers(2, 12), st.integers(1, 300), st.floats(0, 1))
def test_exactly_the_share_asked_for_is_wrong(classes: int, samples: int, share: float) -> None:
    labels = np.random.default_rng(samples).integers(0, classes, samples)
    before = labels.copy()
    noisy = with_wrong_labels(labels, classes, share)
    assert (labels == before).all()
    assert (noisy != labels).sum() == round(share * samples)
    assert ((noisy >= 0) & (noisy < classes)).all()
    assert (noisy == with_wrong_labels(labels, classes, share)).all()


def test_digits_are_split_once_and_normalised() -> None:
    data = digits()
    assert (len(data.train), len(data.test), data.channels, data.classes) == (1437, 360, 1, 10)
    images, labels = data.train.batch(torch.arange(len(data.train)))
    assert images.shape == (1437, 1, 32, 32)
    assert images.dtype == torch.float32
    assert abs(float(images.mean())) < 0.01
    assert abs(float(images.std()) - 1) < 0.01
    assert torch.equal(labels, digits(noise=0.0).train.labels)
    assert torch.equal(data.test.labels, digits(noise=0.4).test.labels)
    several = data.train.__getitems__([5, 0])
    assert torch.equal(several[0][0], data.train[5][0])
    assert several[1][1] == int(labels[0])
