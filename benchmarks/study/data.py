"""The data of a recipe: a fixed part of the images, some labels made wrong."""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.common.data import Data, ImageSet, digits, folder, with_wrong_labels
from benchmarks.study.recipe import PEOPLE, RARE, LabelNoise, Recipe
from benchmarks.study.training_step import Images, Trainer

__all__ = ["SEED", "StudyData", "study_data"]

SEED = 20180101
WEAK_EPOCHS = 5
"""Epochs of the weak model whose errors become labels."""


@dataclass(frozen=True)
class StudyData:
    """Images to train on and to test with, what is left over, and which labels were made wrong, shape (samples,)."""

    name: str
    train: ImageSet
    test: ImageSet
    channels: int
    classes: int
    wrong: NDArray[np.bool_]


def study_data(recipe: Recipe, path: Path | None, people: Path | None = None) -> StudyData:
    """Return the data of a recipe, from a folder of parquet files or, with None, scikit-learn's digits.

    ``people`` is the file of people's labels of CIFAR-10, in the order of its rows, if the recipe asks for them.
    """
    data = _read(path)
    order = np.random.default_rng(SEED).permutation(len(data.train))
    mine = order[: recipe.samples]
    labels = data.train.labels.numpy()
    kind = recipe.noise.kind
    if recipe.thinned > 1:
        mine = _thinned(mine, labels, recipe.thinned)
    if kind in PEOPLE:
        noisy = _said(people, kind, labels)[mine]
    elif recipe.thinned > 1:
        noisy = _exchanged(labels[mine], recipe.noise)
    else:
        noisy = _noisy(data, order, recipe.samples, recipe.noise)
    train = _part(data.train, mine, noisy)
    return StudyData(data.name, train, data.test, data.channels, data.classes, noisy != labels[mine])


@lru_cache(maxsize=1)
def _read(path: Path | None) -> Data:
    return digits() if path is None else folder(path)


def _part(data: ImageSet, which: NDArray[np.int64], labels: NDArray[np.int64]) -> ImageSet:
    return ImageSet(data.images[torch.from_numpy(which)], torch.from_numpy(labels), data.mean, data.std)


def _thinned(mine: NDArray[np.int64], labels: NDArray[np.int64], thinned: int) -> NDArray[np.int64]:
    """Of each rare class every so many-th image, of the others all."""
    stays = np.ones(len(mine), np.bool_)
    for one in range(0, int(labels.max()) + 1, RARE):
        stays[np.flatnonzero(labels[mine] == one)] = False
        stays[np.flatnonzero(labels[mine] == one)[::thinned]] = True
    return mine[stays]


def _exchanged(labels: NDArray[np.int64], noise: LabelNoise) -> NDArray[np.int64]:
    """Labels of which a share is wrong, and says what samples drawn at random are: common classes come more often."""
    if noise.kind not in ("none", "random"):
        raise ValueError(
            f"Expected labels that are right, wrong at random or people's where classes are rare. Got {noise}."
        )
    rng = np.random.default_rng(SEED + 2)
    noisy = labels.copy()
    wrong = rng.permutation(len(labels))[: round(noise.share * len(labels))]
    while wrong.size:
        noisy[wrong] = labels[rng.integers(len(labels), size=wrong.size)]
        wrong = wrong[noisy[wrong] == labels[wrong]]
    return noisy


def _noisy(data: Data, order: NDArray[np.int64], samples: int | None, noise: LabelNoise) -> NDArray[np.int64]:
    labels = data.train.labels.numpy()[order[:samples]]
    if noise.kind == "none":
        return labels
    if noise.kind == "random":
        return with_wrong_labels(labels, data.classes, noise.share)
    return _confused(data, order, samples, noise.share)


def _said(people: Path | None, kind: str, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """People's labels of all images."""
    if people is None:
        raise ValueError(f"Expected --labels, the file of CIFAR-10N's labels, for {kind}. Got none.")
    with np.load(people) as given:
        said: NDArray[np.int64] = given[kind].astype(np.int64)
    if said.shape != labels.shape:
        raise ValueError(f"Expected people's labels of {len(labels)} images. Got {len(said)}: they are of CIFAR-10.")
    return said


def _confused(data: Data, order: NDArray[np.int64], samples: int | None, share: float) -> NDArray[np.int64]:
    """Labels of which ``share`` are a weak model's own errors.

    The model learns from images outside the part that is trained on, or from every other one if that is all.
    """
    mine = order[:samples]
    others = order[len(mine) :][:10_000] if len(order) - len(mine) >= len(mine) else order[::2]
    labels = data.train.labels.numpy()
    recipe = replace(Recipe(seed=SEED), epochs=WEAK_EPOCHS, augment=False)
    taught = Images(_part(data.train, others, labels[others]), torch.device("cpu"))
    trainer = Trainer(recipe, taught, data.classes)
    for number in range(WEAK_EPOCHS):
        trainer.begin_epoch(number)
        shuffled = torch.from_numpy(np.random.default_rng((SEED, number)).permutation(len(others)))
        for ids in shuffled.split(recipe.batch_size):
            trainer.step(ids)
    shown = Images(_part(data.train, mine, labels[mine]), torch.device("cpu"))
    guessed = trainer.scores(shown).argmax(1).numpy()
    errors = np.flatnonzero(guessed != labels[mine])
    wanted = round(share * len(mine))
    if len(errors) < wanted:
        raise ValueError(f"Expected at least {wanted} errors of the weak model. Got {len(errors)}: lower the share.")
    noisy = labels[mine].copy()
    chosen = np.random.default_rng(SEED + 1).permutation(errors)[:wanted]
    noisy[chosen] = guessed[chosen]
    return noisy
