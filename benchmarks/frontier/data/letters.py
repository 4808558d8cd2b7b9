"""Letter recognition (Frey and Slate, 1991; UCI): a table of 20,000 rows, 16 numbers each, in 26 classes."""

from pathlib import Path

import numpy as np

from benchmarks.frontier.data.labels import noisy_labels
from benchmarks.frontier.data.material import Made
from benchmarks.study.data import SEED

__all__ = ["KINDS", "letters"]

KINDS = ("random40", "clean", "confusable20", "random20", "pairs20")
TEST = 4_000


def letters(samples: int, data: Path, people: Path | None = None) -> Made:
    """Return so many rows to train on and 4,000 to test with; ``data`` has the file letter-recognition.data."""
    table = np.loadtxt(data / "letter-recognition.data", delimiter=",", dtype=str)
    order = np.random.default_rng(SEED).permutation(len(table))
    classes, numbers = np.array([ord(letter) - ord("A") for letter in table[:, 0]]), table[:, 1:].astype(np.float32)
    mine, test, others = order[:samples], order[samples : samples + TEST], order[samples + TEST :]
    if not len(others):
        raise ValueError(f"Expected more than {samples + TEST} rows. Got {len(table)} in {data}.")
    scaled = (numbers - numbers[mine].mean(0)) / numbers[mine].std(0)
    return {
        "features": scaled[mine], "truth": classes[mine], "test_features": scaled[test], "test_labels": classes[test],
        **noisy_labels(KINDS, classes[mine], scaled[mine], scaled[others], classes[others]),
    }  # fmt: skip
