"""Images that are trained on, and letters: digits of scikit-learn, Fashion-MNIST (Xiao et al., 2017), and CIFAR-10.

CIFAR-10 is fixed features, with people's labels (CIFAR-10N) and with wrong ones that are made.
"""

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import Tensor

from benchmarks.frontier.data.features import PatchFeatures, PretrainedFeatures
from benchmarks.frontier.data.labels import noisy_labels
from benchmarks.frontier.data.material import Made
from benchmarks.study.data import SEED, study_data
from benchmarks.study.recipe import LabelNoise, Recipe

__all__ = [
    "AT_RANDOM",
    "CIFAR_KINDS",
    "KINDS",
    "cifar10",
    "cifar10_pixels",
    "digits",
    "fashion",
    "letter_halves",
    "letter_pairs",
    "letters",
    "pretrained_cifar10",
]

KINDS = ("random40", "clean", "confusable20", "random20", "pairs20")
TEST = 400
TEACHERS = 40
"""Images that teach the weak model: of more it learns too well to err on a fifth of the others."""


def digits(samples: int, data: Path, people: Path | None = None) -> Made:
    """Return so many images to train on and 400 to test with as pixels, shape (n, 64): scikit-learn's, with no file."""
    pixels, truth = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(truth))
    mine, test, others = order[:samples], order[samples : samples + TEST], order[samples + TEST :][:TEACHERS]
    scaled = ((pixels - pixels[mine].mean()) / pixels[mine].std()).astype(np.float32)
    return {
        "features": scaled[mine], "truth": truth[mine], "test_features": scaled[test], "test_labels": truth[test],
        **noisy_labels(KINDS, truth[mine], scaled[mine], scaled[others], truth[others]),
    }  # fmt: skip


def fashion(samples: int, data: Path, people: Path | None = None) -> Made:
    """Return so many training images and all test images as pixels, shape (n, 784); ``data`` has the four gz files."""
    images, truth = (_read_idx(data / f"train-{what}-ubyte.gz") for what in ("images-idx3", "labels-idx1"))
    order = np.random.default_rng(SEED).permutation(len(truth))
    mine, others = order[:samples], order[samples : 2 * samples]
    mean, deviation = images[mine].mean(), images[mine].std()

    def scaled(some: NDArray[np.uint8]) -> NDArray[np.float32]:
        return np.asarray((some.reshape(len(some), -1) - mean) / deviation, dtype=np.float32)

    features, labels = scaled(images[mine]), truth[mine].astype(np.int64)
    test = [_read_idx(data / f"t10k-{what}-ubyte.gz") for what in ("images-idx3", "labels-idx1")]
    return {
        "features": features, "truth": labels,
        "test_features": scaled(test[0]), "test_labels": test[1].astype(np.int64),
        **noisy_labels(KINDS, labels, features, scaled(images[others]), truth[others].astype(np.int64)),
    }  # fmt: skip


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """Read a file of the IDX format: two zeros, the dtype, the dimensions, and the bytes."""
    with gzip.open(path) as file:
        zeros, kind, dimensions = file.read(2), *file.read(2)
        if zeros != b"\0\0" or kind != 8:
            raise ValueError(f"Expected an IDX file of bytes. Got another in {path}.")
        shape = np.frombuffer(file.read(4 * dimensions), dtype=">u4")
        return np.frombuffer(file.read(), dtype=np.uint8).reshape(shape)


CIFAR_KINDS = {
    "worse": LabelNoise("worse"),
    "aggre": LabelNoise("aggre"),
    "clean": LabelNoise(),
    "random40": LabelNoise("random", 0.4),
    "random20": LabelNoise("random", 0.2),
    "confusable20": LabelNoise("confusable", 0.2),
}
"""People's labels and those that are made here, by the names that the frontier gives them."""
Features = Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]
"""Called with images to train on and others; returns the features of each, float32 of shape (n, width)."""


def cifar10(samples: int, data: Path, people: Path | None, features: Features = PatchFeatures()) -> Made:  # noqa: B008
    """Return so many training images and all test images as features, which takes a few minutes.

    Parameters
    ----------
    samples : int
        Those held out among them.
    data : Path
        Folder of CIFAR-10 in the parquet layout.
    people : Path
        CIFAR-10N's labels in the order of its rows.
    features : callable
        Makes them of the images.
    """
    made = {kind: study_data(Recipe(samples=samples, noise=noise), data, people) for kind, noise in CIFAR_KINDS.items()}
    clean, labels = made["clean"], {kind: each.train.labels.numpy() for kind, each in made.items()}
    train, test = features(clean.train.images, (clean.test.images,))
    return {
        "features": train.half().numpy(), "truth": clean.train.labels.numpy(),
        "test_features": test.half().numpy(), "test_labels": clean.test.labels.numpy(), **labels,
    }  # fmt: skip


def pretrained_cifar10(samples: int, data: Path, people: Path | None) -> Made:
    """As :func:`cifar10`, with features of a pretrained network: it takes about five minutes."""
    return cifar10(samples, data, people, PretrainedFeatures())


def cifar10_pixels(samples: int, data: Path, people: Path | None) -> Made:
    """The same, of pixels: each image a row, of mean 0 and deviation 1 in each colour."""
    return cifar10(samples, data, people, _pixels)


def _pixels(images: Tensor, others: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    deviation, mean = torch.std_mean(images.float(), (0, 2, 3), keepdim=True)
    return tuple(((each.float() - mean) / deviation).flatten(1) for each in (images, *others))


AT_RANDOM = ("random40", "clean", "random20")
LETTERS_TEST = 4_000
ALPHABET = 26

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]


def letters(samples: int, data: Path, people: Path | None = None) -> Made:
    """Return so many rows to train on and 4,000 to test with; ``data`` has the file letter-recognition.data.

    Letter recognition (Frey and Slate, 1991; UCI) is a table of 20,000 rows, 16 numbers each, in 26 classes. Its halves
    and pairs have 2 classes and 676, to see what a run shows where there are few or many.
    """
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
    first, second = np.random.default_rng(SEED).integers(0, len(classes), (2, samples + 2 * LETTERS_TEST))
    both = np.concatenate([numbers[first], numbers[second]], axis=1)
    return _made(samples, both, ALPHABET * classes[first] + classes[second], AT_RANDOM)


def _read(data: Path) -> tuple[Floats, Labels]:
    """The numbers and the letters, A to Z as 0 to 25."""
    table: NDArray[Any] = np.loadtxt(data / "letter-recognition.data", delimiter=",", dtype=str)
    return table[:, 1:].astype(np.float32), np.array([ord(letter) - ord("A") for letter in table[:, 0]])


def _made(samples: int, numbers: Floats, classes: Labels, kinds: Sequence[str]) -> Made:
    order = np.random.default_rng(SEED).permutation(len(classes))
    mine, test, others = order[:samples], order[samples : samples + LETTERS_TEST], order[samples + LETTERS_TEST :]
    if not len(others):
        raise ValueError(f"Expected more than {samples + LETTERS_TEST} rows. Got {len(classes)}.")
    scaled = (numbers - numbers[mine].mean(0)) / numbers[mine].std(0)
    return {
        "features": scaled[mine], "truth": classes[mine], "test_features": scaled[test], "test_labels": classes[test],
        **noisy_labels(kinds, classes[mine], scaled[mine], scaled[others], classes[others]),
    }  # fmt: skip
