"""Letter recognition (Frey and Slate, 1991; UCI): a table of 20,000 rows, 16 numbers each, in 26 classes.

Its halves and pairs have 2 classes and 676, to see what a run shows where there are few or many.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.frontier.data.labels import noisy_labels
from benchmarks.frontier.data.material import Made
from benchmarks.study.data import SEED

__all__ = ["AT_RANDOM", "KINDS", "letter_halves", "letter_pairs", "letters"]

KINDS = ("random40", "clean", "confusable20", "random20", "pairs20")
AT_RANDOM = ("random40", "clean", "random20")
TEST = 4_000
ALPHABET = 26

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]


def letters(samples: int, data: Path, people: Path | None = None) -> Made:
    """Return so many rows to train on and 4,000 to test with; ``data`` has the file letter-recognition.data."""
    return _made(samples, *_read(data), KINDS)


def letter_halves(samples: int, data: Path, people: Path | None = None) -> Made:
    """Return the same with 2 classes: the letter is in the first half of the alphabet, or in the second."""
    numbers, classes = _read(data)
    return _made(samples, numbers, classes // (ALPHABET // 2), AT_RANDOM)


def letter_pairs(samples: int, data: Path, people: Path | None = None) -> Made:
    """Return pairs of rows, drawn at random, with a class for each pair of letters: 676.

    A row may be in several pairs, of those to test with too: made to watch a run, not to judge its accuracy.
    """
    numbers, classes = _read(data)
    first, second = np.random.default_rng(SEED).integers(0, len(classes), (2, samples + 2 * TEST))
    both = np.concatenate([numbers[first], numbers[second]], axis=1)
    return _made(samples, both, ALPHABET * classes[first] + classes[second], AT_RANDOM)


def _read(data: Path) -> tuple[Floats, Labels]:
    """The numbers and the letters, A to Z as 0 to 25."""
    table: NDArray[Any] = np.loadtxt(data / "letter-recognition.data", delimiter=",", dtype=str)
    return table[:, 1:].astype(np.float32), np.array([ord(letter) - ord("A") for letter in table[:, 0]])


def _made(samples: int, numbers: Floats, classes: Labels, kinds: Sequence[str]) -> Made:
    order = np.random.default_rng(SEED).permutation(len(classes))
    mine, test, others = order[:samples], order[samples : samples + TEST], order[samples + TEST :]
    if not len(others):
        raise ValueError(f"Expected more than {samples + TEST} rows. Got {len(classes)}.")
    scaled = (numbers - numbers[mine].mean(0)) / numbers[mine].std(0)
    return {
        "features": scaled[mine], "truth": classes[mine], "test_features": scaled[test], "test_labels": classes[test],
        **noisy_labels(kinds, classes[mine], scaled[mine], scaled[others], classes[others]),
    }  # fmt: skip
