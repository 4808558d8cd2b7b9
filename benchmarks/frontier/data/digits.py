"""Handwritten digits of scikit-learn: 1,797 images of 8x8 pixels, which come with the package."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.frontier.data.labels import noisy_labels
from benchmarks.frontier.data.material import Made
from benchmarks.study.data import SEED

__all__ = ["KINDS", "digits"]

KINDS = ("random40", "clean", "confusable20", "random20", "pairs20")
TEST = 400
TEACHERS = 40
"""Images that teach the weak model: of more it learns too well to err on a fifth of the others."""


def digits(samples: int, data: Path, people: Path | None = None) -> Made:
    """Return so many images to train on and 400 to test with as pixels, shape (n, 64). No file is needed."""
    pixels, truth = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(truth))
    mine, test, others = order[:samples], order[samples : samples + TEST], order[samples + TEST :][:TEACHERS]
    scaled = ((pixels - pixels[mine].mean()) / pixels[mine].std()).astype(np.float32)
    return {
        "features": scaled[mine], "truth": truth[mine], "test_features": scaled[test], "test_labels": truth[test],
        **noisy_labels(KINDS, truth[mine], scaled[mine], scaled[others], truth[others]),
    }  # fmt: skip
