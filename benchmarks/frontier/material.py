"""What is trained on: features of some images, and their labels of every kind. Made once, then kept in a file.

The only module here that knows the rest of the benchmarks.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.frontier.features import PatchFeatures
from benchmarks.study.data import SEED, study_data
from benchmarks.study.recipe import LabelNoise, Recipe

__all__ = ["KINDS", "HeadTask", "Material", "Part", "load"]

SAMPLES, HELD_OUT = 20_000, 2_000
"""Images to train on, and others whose labels, wrong ones among them, say when to stop."""
MADE = {
    "clean": LabelNoise(),
    "random40": LabelNoise("random", 0.4),
    "random20": LabelNoise("random", 0.2),
    "confusable20": LabelNoise("confusable", 0.2),
}
"""Labels that are made here."""
PEOPLE = ("worse", "aggre")
"""Labels that people gave (CIFAR-10N): the worst of three answers, and the majority of them."""
KINDS = ("worse", "random40", "clean", "aggre", "confusable20", "random20")
"""All kinds of labels, what decides most first."""


@dataclass(frozen=True, eq=False)
class Part:
    """Features, float32 or bfloat16 of shape (n, width), and labels, int64 of shape (n,)."""

    features: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or self.labels.shape != self.features.shape[:1]:
            shapes = tuple(self.features.shape), tuple(self.labels.shape)
            raise ValueError(f"Expected features of shape (n, width) and n labels. Got shapes {shapes}.")

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class HeadTask:
    """Labels of one kind to learn; ``wrong``, shape (samples,), says which of those trained on are wrong.

    The labels of ``held_out`` are of the kind too, those of ``test`` are true.
    """

    kind: str
    train: Part
    held_out: Part
    test: Part
    wrong: NDArray[np.bool_]
    classes: int

    def __post_init__(self) -> None:
        if self.wrong.shape != (len(self.train),):
            raise ValueError(f"Expected to know of {len(self.train)} labels if they are wrong. Got {self.wrong.shape}.")


@dataclass(frozen=True, eq=False)
class Material:
    """Features, true labels and labels of each kind: of those trained on, then those held out, and of the test set."""

    features: Tensor
    truth: Tensor
    labels: Mapping[str, Tensor]
    test: Part

    def task(self, kind: str) -> HeadTask:
        """Return the task of a kind of labels."""
        if kind not in self.labels:
            raise ValueError(f"Expected one of the kinds of labels {', '.join(self.labels)}. Got {kind!r}.")
        labels, cut = self.labels[kind], len(self.truth) - HELD_OUT
        wrong = (labels != self.truth)[:cut].numpy()
        train, held_out = Part(self.features[:cut], labels[:cut]), Part(self.features[cut:], labels[cut:])
        return HeadTask(kind, train, held_out, self.test, wrong, int(self.truth.max()) + 1)


def load(data: Path, people: Path, cache: Path) -> Material:
    """Return the material, from the file ``cache`` if it is there, or else made, which takes a few minutes.

    Parameters
    ----------
    data : Path
        Folder of CIFAR-10 in the parquet layout.
    people : Path
        CIFAR-10N's labels in the order of its rows.
    cache : Path
        Where the material is kept; made anew if it is of other settings.
    """
    recipe = json.dumps({"samples": SAMPLES, "held_out": HELD_OUT, **asdict(PatchFeatures())})
    if cache.exists():
        with np.load(cache) as kept:
            if str(kept["recipe"]) == recipe:
                return _material(kept)
    arrays = {"recipe": np.array(recipe), **_make(data, people)}
    cache.parent.mkdir(parents=True, exist_ok=True)
    part = cache.with_suffix(".part.npz")
    np.savez(part, **arrays)  # type: ignore[arg-type]
    part.replace(cache)
    return _material(arrays)


def _material(arrays: Mapping[str, NDArray[np.generic]]) -> Material:
    tensors = {name: torch.from_numpy(arrays[name]) for name in arrays if name != "recipe"}
    labels = {kind: tensors[kind].long() for kind in KINDS}
    test = Part(tensors["test_features"].bfloat16(), tensors["test_labels"].long())
    return Material(tensors["features"].bfloat16(), tensors["truth"].long(), labels, test)


def _make(data: Path, people: Path) -> dict[str, NDArray[np.generic]]:
    samples = SAMPLES + HELD_OUT
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
