"""Crop and flip against a transcription pixel by pixel, and what they promise of chance."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from benchmarks.common.augment import crop_and_flip


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


def test_views_of_any_strides_are_taken():
    images = random_images((8, 3, 32, 32), torch.float32, 0)
    for view in (images.transpose(2, 3), images.flip(0).transpose(0, 1), images[:, :, 3:20, ::2], images[::3]):
        assert torch.equal(crop_and_flip(view, seeded(1)), crop_and_flip(view.contiguous(), seeded(1)))


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


@pytest.mark.parametrize(("shape", "padding"), [((3, 32, 32), 4), ((2, 3, 32, 32), -1)])
def test_says_what_it_expected(shape, padding):
    with pytest.raises(ValueError, match=rf"Expected images of shape .* Got the shape \({shape[0]}, .* of {padding}\."):
        crop_and_flip(torch.zeros(shape), seeded(0), padding)


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
