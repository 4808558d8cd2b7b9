"""CIFAR-10 as fixed features, with people's labels (CIFAR-10N) and with wrong ones that are made."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.frontier.data.features import PatchFeatures
from benchmarks.frontier.data.material import Made
from benchmarks.study.data import study_data
from benchmarks.study.recipe import LabelNoise, Recipe

__all__ = ["KINDS", "cifar10", "cifar10_pixels"]

KINDS = {
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
    made = {kind: study_data(Recipe(samples=samples, noise=noise), data, people) for kind, noise in KINDS.items()}
    clean, labels = made["clean"], {kind: each.train.labels.numpy() for kind, each in made.items()}
    train, test = features(clean.train.images, (clean.test.images,))
    return {
        "features": train.half().numpy(), "truth": clean.train.labels.numpy(),
        "test_features": test.half().numpy(), "test_labels": clean.test.labels.numpy(), **labels,
    }  # fmt: skip


def cifar10_pixels(samples: int, data: Path, people: Path | None) -> Made:
    """The same, of pixels: each image a row, of mean 0 and deviation 1 in each colour."""
    return cifar10(samples, data, people, _pixels)


def _pixels(images: Tensor, others: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    deviation, mean = torch.std_mean(images.float(), (0, 2, 3), keepdim=True)
    return tuple(((each.float() - mean) / deviation).flatten(1) for each in (images, *others))
