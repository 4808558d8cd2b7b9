"""Data sets: folders of images, digits, labels made wrong, and crops and flips."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from benchmarks.common.data import DataFolderError, crop_and_flip, digits, folder, read_folder, with_wrong_labels
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


# Crop and flip against a transcription pixel by pixel, and what they promise of chance.


def seeded(seed: int, device: str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def random_images(shape: tuple[int, int, int, int], dtype: torch.dtype, seed: int) -> Tensor:
    """No pixel is 0, so that padding can be told from them."""
    return torch.randint(1, 256, shape, generator=seeded(seed)).to(dtype)


def one_by_one(images: Tensor, generator: torch.Generator, padding: int) -> list[object]:
    """Crop and flip as one would write it for a single pixel."""
    batch, channels, height, width = images.shape
    span, source, result = 2 * padding + 1, images.tolist(), []
    for image, draw in zip(source, torch.randint(2 * span * span, (batch,), generator=generator).tolist(), strict=True):
        flip, down, right = draw % 2, draw // 2 // span - padding, draw // 2 % span - padding
        cropped = [[[0] * width for _ in range(height)] for _ in range(channels)]
        for channel in range(channels):
            for y in range(height):
                for x in range(width):
                    from_y, from_x = y + down, x + right
                    if 0 <= from_y < height and 0 <= from_x < width:
                        cropped[channel][y][width - 1 - x if flip else x] = image[channel][from_y][from_x]
        result.append(cropped)
    return result


@given(
    shape=st.tuples(st.integers(0, 4), st.integers(1, 3), st.integers(1, 7), st.integers(1, 7)),
    padding=st.integers(0, 5),
    dtype=st.sampled_from([torch.uint8, torch.float32, torch.bfloat16, torch.int64]),
    seed=st.integers(0, 2**32),
)
def test_equals_the_transcription(shape, padding, dtype, seed):
    images = random_images(shape, dtype, seed)
    before = images.clone()
    result = crop_and_flip(images, seeded(seed), padding)
    assert result.dtype == dtype
    assert result.shape == images.shape
    assert result.tolist() == one_by_one(images, seeded(seed), padding)
    assert torch.equal(images, before)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_memory_format_is_kept(channels):
    images = random_images((8, channels, 32, 32), torch.float32, 0)
    last = images.contiguous(memory_format=torch.channels_last)
    result, result_last = crop_and_flip(images, seeded(1)), crop_and_flip(last, seeded(1))
    assert torch.equal(result, result_last)
    assert result.is_contiguous()
    assert result_last.is_contiguous(memory_format=torch.channels_last)


def test_every_crop_comes_about_equally_often():
    """All images are one: its 2 x 9 x 9 crops, each expected 100 times, come 50 to 150 times (5 deviations)."""
    image = random_images((1, 1, 32, 32), torch.float32, 0)
    crops = crop_and_flip(image.expand(16_200, 1, 32, 32), seeded(0))
    # A weighted sum stands for a crop; two that are equal would show as too few kinds.
    weights = torch.rand(32 * 32, generator=seeded(1), dtype=torch.float64)
    kinds = Counter((crops.flatten(1).double() * weights).sum(1).tolist())
    assert len(kinds) == 2 * 9 * 9
    assert 50 < min(kinds.values()) <= max(kinds.values()) < 150


def test_only_the_generator_decides():
    images = random_images((64, 3, 32, 32), torch.uint8, 0)
    state = torch.get_rng_state()
    generator = seeded(3)
    first, second = crop_and_flip(images, generator), crop_and_flip(images, generator)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(first, second)
    again = seeded(3)
    assert torch.equal(crop_and_flip(images.float(), again), first.float())
    assert torch.equal(crop_and_flip(images, again), second)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_a_gpu_gives_what_a_cpu_gives_and_waits_for_nothing(dtype):
    images = random_images((128, 3, 32, 32), dtype, 0)
    on_gpu, own = images.cuda(), seeded(5, "cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = crop_and_flip(on_gpu, seeded(5))
        crop_and_flip(on_gpu, own)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(result.cpu(), crop_and_flip(images, seeded(5)))
