"""Small pictures of samples: as PNG from arrays alone, with no image library; what is Pillow's it writes itself."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["LARGE_SIDE", "SIDE", "as_pixels", "data_uri", "photograph", "shrunk"]

SIDE = 96
"""Pixels of a thumbnail's longer side, at most."""
LARGE_SIDE = 224
"""Of a picture that is looked at alone."""
CHANNELS = (1, 3, 4)


def as_pixels(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8] | None:
    """Return an image as uint8 of shape (height, width, channels), or None if the array is none.

    Taken are (height, width), (height, width, channels) and (channels, height, width), with 1, 3 or 4 channels, of
    numbers or bools. Bytes stay as they are; floats from 0 to 1 are taken as shares of white; all else is spread from
    its least to its greatest.
    """
    if array.dtype.kind not in "buif" or array.ndim not in (2, 3) or not array.size:
        return None
    if array.ndim == 2:
        array = array[:, :, np.newaxis]
    elif array.shape[2] not in CHANNELS:
        if array.shape[0] not in CHANNELS:
            return None
        array = np.moveaxis(array, 0, 2)
    if array.shape[2] == 4:
        array = array[:, :, :3]
    if array.dtype == np.uint8:
        return array
    values = np.nan_to_num(array.astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = float(values.min()), float(values.max())
    if array.dtype.kind in "bf" and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    return (255 * (values - low) / ((high - low) or 1.0)).round().astype(np.uint8)


def shrunk(pixels: npt.NDArray[np.uint8], side: int = SIDE) -> npt.NDArray[np.uint8]:
    """Return an image of at most `side` pixels a side, each the mean of those that it stands for."""
    step = max(1, -(-max(pixels.shape[:2]) // side))
    if step == 1:
        return pixels
    pixels = pixels[: 8 * side * step, : 8 * side * step]
    height, width = (max(1, side // step) for side in pixels.shape[:2])
    rows = np.add.reduceat(pixels.astype(np.uint32), np.arange(height) * step, axis=0)
    blocks = np.add.reduceat(rows, np.arange(width) * step, axis=1)
    tall = np.diff(np.append(np.arange(height) * step, pixels.shape[0]))
    wide = np.diff(np.append(np.arange(width) * step, pixels.shape[1]))
    return np.asarray(blocks // np.outer(tall, wide)[:, :, np.newaxis]).astype(np.uint8)


def data_uri(pixels: npt.NDArray[np.uint8]) -> str:
    """Return an image of shape (height, width, 1 or 3) as the address of a PNG that holds all of it."""
    height, width, channels = pixels.shape
    kind = 0 if channels == 1 else 2
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, width * channels)], axis=1)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    chunks = b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in parts
    )
    return "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n" + chunks).decode("ascii")


def photograph(image: Any) -> str:
    """Return a picture of Pillow's as the address of a small JPEG, which takes a tenth of a PNG; Pillow writes it."""
    small = image.copy()
    small.thumbnail((LARGE_SIDE, LARGE_SIDE))
    file = BytesIO()
    small.save(file, "JPEG", quality=85)
    return "data:image/jpeg;base64," + b64encode(file.getvalue()).decode("ascii")
