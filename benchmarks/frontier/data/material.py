"""What a subject is trained on: features of samples, and their labels of every kind. Made once, then kept in a file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["HeadTask", "Made", "Material", "Part", "load"]

Made = dict[str, NDArray[np.generic]]
"""Arrays by name: ``features``, ``truth``, ``test_features``, ``test_labels``, and the labels of each kind."""


@dataclass(frozen=True, eq=False)
class Part:
    """Features, float32, bfloat16 or integers of shape (n, width), and labels, int64 of shape (n,)."""

    features: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or self.labels.shape != self.features.shape[:1]:
            shapes = tuple(self.features.shape), tuple(self.labels.shape)
            raise ValueError(f"Expected features of shape (n, width) and n labels. Got shapes {shapes}.")

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, samples: int) -> "Part":
        """The first so many."""
        return Part(self.features[:samples], self.labels[:samples])


@dataclass(frozen=True, eq=False)
class HeadTask:
    """Labels of one kind to learn; ``wrong``, shape (samples,), says which of those trained on are wrong.

    ``truth``, of that shape, has their true labels.

    The labels of ``held_out`` are of the kind too, those of ``test`` are true.
    """

    kind: str
    train: Part
    held_out: Part
    test: Part
    wrong: NDArray[np.bool_]
    truth: NDArray[np.int64]
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
    held_out: int

    def task(self, kind: str) -> HeadTask:
        """Return the task of a kind of labels."""
        if kind not in self.labels:
            raise ValueError(f"Expected one of the kinds of labels {', '.join(self.labels)}. Got {kind!r}.")
        labels, cut = self.labels[kind], len(self.truth) - self.held_out
        wrong = (labels != self.truth)[:cut].numpy()
        train, held_out = Part(self.features[:cut], labels[:cut]), Part(self.features[cut:], labels[cut:])
        return HeadTask(kind, train, held_out, self.test, wrong, self.truth[:cut].numpy(), int(self.truth.max()) + 1)


def load(recipe: str, make: Callable[[], Made], kinds: Sequence[str], held_out: int, cache: Path) -> Material:
    """Return the material, from the file ``cache`` if it is there, or else made.

    Parameters
    ----------
    recipe : str
        All that decides what is made; a cache of another recipe is made anew.
    make : callable
        Returns the arrays.
    kinds : sequence of str
        Kinds of labels that it makes.
    held_out : int
        Samples at the end whose labels, wrong ones among them, say when to stop.
    cache : Path
    """
    if cache.exists():
        with np.load(cache) as kept:
            if str(kept["recipe"]) == recipe:
                return _material(kept, kinds, held_out)
    arrays = {"recipe": np.array(recipe), **make()}
    cache.parent.mkdir(parents=True, exist_ok=True)
    part = cache.with_suffix(".part.npz")
    np.savez(part, **arrays)  # type: ignore[arg-type]
    part.replace(cache)
    return _material(arrays, kinds, held_out)


def _material(arrays: Mapping[str, NDArray[np.generic]], kinds: Sequence[str], held_out: int) -> Material:
    tensors = {name: torch.from_numpy(arrays[name]) for name in arrays if name != "recipe"}
    labels = {kind: tensors[kind].long() for kind in kinds}
    features, others = (_small(tensors[name]) for name in ("features", "test_features"))
    test = Part(others, tensors["test_labels"].long())
    return Material(features, tensors["truth"].long(), labels, test, held_out)


def _small(features: Tensor) -> Tensor:
    return features.bfloat16() if features.is_floating_point() else features
