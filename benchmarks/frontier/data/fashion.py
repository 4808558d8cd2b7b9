"""Fashion-MNIST (Xiao et al., 2017): 28x28 images of clothes in ten classes, from its own files."""

import gzip
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.frontier.data.labels import noisy_labels
from benchmarks.frontier.data.material import Made
from benchmarks.study.data import SEED

__all__ = ["KINDS", "fashion"]

KINDS = ("random40", "clean", "confusable20", "random20", "pairs20")


def fashion(samples: int, data: Path, people: Path | None = None) -> Made:
    """Return so many training images and all test images as pixels, shape (n, 784); ``data`` has the four gz files."""
    images, truth = (_read(data / f"train-{what}-ubyte.gz") for what in ("images-idx3", "labels-idx1"))
    order = np.random.default_rng(SEED).permutation(len(truth))
    mine, others = order[:samples], order[samples : 2 * samples]
    mean, deviation = images[mine].mean(), images[mine].std()

    def scaled(some: NDArray[np.uint8]) -> NDArray[np.float32]:
        return np.asarray((some.reshape(len(some), -1) - mean) / deviation, dtype=np.float32)

    features, labels = scaled(images[mine]), truth[mine].astype(np.int64)
    test = [_read(data / f"t10k-{what}-ubyte.gz") for what in ("images-idx3", "labels-idx1")]
    return {
        "features": features, "truth": labels,
        "test_features": scaled(test[0]), "test_labels": test[1].astype(np.int64),
        **noisy_labels(KINDS, labels, features, scaled(images[others]), truth[others].astype(np.int64)),
    }  # fmt: skip


def _read(path: Path) -> NDArray[np.uint8]:
    """Read a file of the IDX format: two zeros, the dtype, the dimensions, and the bytes."""
    with gzip.open(path) as file:
        zeros, kind, dimensions = file.read(2), *file.read(2)
        if zeros != b"\0\0" or kind != 8:
            raise ValueError(f"Expected an IDX file of bytes. Got another in {path}.")
        shape = np.frombuffer(file.read(4 * dimensions), dtype=">u4")
        return np.frombuffer(file.read(), dtype=np.uint8).reshape(shape)
