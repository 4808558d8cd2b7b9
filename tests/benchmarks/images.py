"""Folders of images in the parquet layout, made for tests."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

__all__ = ["encoded", "pictures", "write"]


def encoded(pixels: np.ndarray[Any, Any], kind: str) -> dict[str, Any]:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format=kind)
    return {"bytes": buffer.getvalue(), "path": None}


def pictures(count: int, channels: int = 3, size: int = 32, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Plain grounds of random colour: JPEG keeps them within a few levels."""
    colours = np.random.default_rng(seed).integers(0, 256, (count, channels), dtype=np.uint8)
    shape = (size, size) if channels == 1 else (size, size, channels)
    return [np.broadcast_to(colour if channels > 1 else colour[0], shape).copy() for colour in colours]


def write(path: Path, image: str = "img", label: str = "label", **columns: Any) -> None:
    """Write one file of the `images` and `labels` given, else of four PNG images."""
    images = columns.get("images", [encoded(p, "png") for p in pictures(4)])
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({image: images, label: columns.get("labels", [0, 1, 2, 0])}), path)
