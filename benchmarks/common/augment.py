"""The augmentation usual on CIFAR: crop the padded image at random, mirror half of them."""

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["crop_and_flip"]


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
