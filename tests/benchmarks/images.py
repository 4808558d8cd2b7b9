"""Folders of images in the parquet layout, and a stand-in for InfoBatch's repository, made for tests."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

__all__ = ["INFOBATCH", "encoded", "infobatch_checkout", "pictures", "write"]


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


# A stand-in for InfoBatch's repository.


INFOBATCH = """
from torch.utils.data.dataloader import _BaseDataLoaderIter

def hacked(self):
    raise RuntimeError("the patch is still there")

_BaseDataLoaderIter.__next__ = hacked

class InfoBatch:
    def __init__(self, dataset, num_epochs, prune_ratio=0.5, delta=0.875):
        self.scores = [3.0] * len(dataset)

    def set_active_indices(self, ids):
        self.ids = ids.tolist()

    def update(self, losses):
        for at, loss in zip(self.ids, losses.tolist(), strict=True):
            self.scores[at] = loss
        return losses.mean()
"""


def infobatch_checkout(folder: Path, more: str = "") -> Path:
    """Lay out a folder as a clone of InfoBatch, whose file patches DataLoader as InfoBatch's does."""
    (folder / "infobatch").mkdir()
    (folder / "infobatch" / "infobatch.py").write_text(INFOBATCH + more)
    return folder
