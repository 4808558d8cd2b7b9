"""CIFAR-10 as fixed features, with people's labels (CIFAR-10N) and with wrong ones that are made."""

from pathlib import Path

import numpy as np

from benchmarks.frontier.data.features import PatchFeatures
from benchmarks.frontier.data.material import Made
from benchmarks.study.data import SEED, study_data
from benchmarks.study.recipe import LabelNoise, Recipe

__all__ = ["cifar10"]

MADE = {
    "clean": LabelNoise(),
    "random40": LabelNoise("random", 0.4),
    "random20": LabelNoise("random", 0.2),
    "confusable20": LabelNoise("confusable", 0.2),
}
"""Labels that are made here."""
PEOPLE = ("worse", "aggre")
"""Labels that people gave (CIFAR-10N): the worst of three answers, and the majority of them."""


def cifar10(samples: int, data: Path, people: Path | None) -> Made:
    """Return so many training images and all test images as features, which takes a few minutes.

    Parameters
    ----------
    samples : int
        Those held out among them.
    data : Path
        Folder of CIFAR-10 in the parquet layout.
    people : Path
        CIFAR-10N's labels in the order of its rows.
    """
    if people is None:
        raise ValueError("Expected --labels, the file of CIFAR-10N's labels. Got none.")
    made = {kind: study_data(Recipe(samples=samples, noise=noise), data) for kind, noise in MADE.items()}
    clean = made["clean"]
    labels = {kind: each.train.labels.numpy() for kind, each in made.items()}
    with np.load(people) as given:
        order = np.random.default_rng(SEED).permutation(len(given[PEOPLE[0]]))[:samples]
        labels |= {kind: given[kind][order].astype(np.int64) for kind in PEOPLE}
    train, test = PatchFeatures()(clean.train.images, (clean.test.images,))
    return {
        "features": train.half().numpy(), "truth": clean.train.labels.numpy(),
        "test_features": test.half().numpy(), "test_labels": clean.test.labels.numpy(), **labels,
    }  # fmt: skip
