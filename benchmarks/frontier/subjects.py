"""The subjects of the frontier: a network and the data that it learns."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.frontier.arms import Lengths
from benchmarks.frontier.data.features import PatchFeatures, PretrainedFeatures
from benchmarks.frontier.data.images import (
    AT_RANDOM,
    CIFAR_KINDS,
    KINDS,
    cifar10,
    cifar10_pixels,
    digits,
    fashion,
    letter_halves,
    letter_pairs,
    letters,
    pretrained_cifar10,
)
from benchmarks.frontier.data.material import Made, Material, load
from benchmarks.frontier.data.texts import KINDS as TEXT_KINDS
from benchmarks.frontier.data.texts import WIDTH, text_embeddings, text_tokens
from benchmarks.frontier.training.train import Settings

__all__ = ["SUBJECTS", "Subject"]


@dataclass(frozen=True)
class Subject:
    """A network and the data that it learns.

    Parameters
    ----------
    title : str
        What it is, in a few words.
    samples, held_out : int
        Samples to train on, and others whose labels, wrong ones among them, say when to stop.
    kinds : tuple of str
        Kinds of labels.
    make : callable
        Called as ``make(samples and those held out, data, people)``; returns the arrays.
    settings : Settings
    lengths : Lengths
        Epochs of its runs.
    """

    title: str
    samples: int
    held_out: int
    kinds: tuple[str, ...]
    make: Callable[[int, Path, Path | None], Made]
    settings: Settings
    lengths: Lengths = Lengths()  # noqa: RUF009, it is frozen

    def load(self, data: Path, people: Path | None, cache: Path) -> Material:
        """Return its material, from the file ``cache`` if it is there, or else made from the folder ``data``."""
        recipe = {
            "make": self.make.__name__,
            "samples": self.samples,
            "held_out": self.held_out,
            "kinds": self.kinds,
            **asdict(PatchFeatures()),
            **asdict(PretrainedFeatures()),
        }
        total = self.samples + self.held_out
        return load(json.dumps(recipe), lambda: self.make(total, data, people), self.kinds, self.held_out, cache)


SUBJECTS = {
    "head": Subject(
        "a head on fixed features of CIFAR-10", 20_000, 2_000, tuple(CIFAR_KINDS), cifar10, Settings()
    ),
    "head-pretrained": Subject(
        "a head on features of EfficientNet-Lite0, trained on ImageNet, of CIFAR-10", 20_000, 2_000,
        tuple(CIFAR_KINDS), pretrained_cifar10, Settings(),
    ),
    "conv-cifar10": Subject(
        "a convolutional network on CIFAR-10's pixels", 30_000, 2_000, tuple(CIFAR_KINDS), cifar10_pixels,
        Settings("normalised-convolutions", (32, 64, 128), rate=0.1),
        Lengths((3, 5, 7, 10, 15, 20, 30, 45), (5, 10, 20, 30, 45)),
    ),
    "mlp-fashion": Subject(
        "an MLP on Fashion-MNIST", 10_000, 2_000, KINDS, fashion, Settings(hidden=(512, 256), rate=0.02)
    ),
    "conv-fashion": Subject(
        "a convolutional network on Fashion-MNIST", 10_000, 2_000, KINDS, fashion,
        Settings("convolutions", (16, 32, 128), rate=0.02),
    ),
    "conv-digits": Subject(
        "a convolutional network on digits", 1_100, 100, KINDS, digits,
        Settings("convolutions", (16, 32, 64), batch_size=32, rate=0.05),
    ),
    "mlp-letters": Subject(
        "an MLP on a table, letter recognition", 12_000, 2_000, KINDS, letters, Settings(hidden=(512, 256), rate=0.1)
    ),
    "mlp-2-classes": Subject(
        "an MLP on the same table, 2 classes", 12_000, 2_000, AT_RANDOM, letter_halves,
        Settings(hidden=(512, 256), rate=0.1),
    ),
    "mlp-676-classes": Subject(
        "an MLP on pairs of rows of that table, 676 classes", 30_000, 2_000, AT_RANDOM, letter_pairs,
        Settings(hidden=(512, 256), rate=0.1),
    ),
    "head-texts": Subject(
        "a head on embeddings by MiniLM of short texts that people rated", 18_000, 2_000, TEXT_KINDS, text_embeddings,
        Settings(),
    ),
    "minilm-texts": Subject(
        "MiniLM, all of it trained further, on such texts", 1_500, 500, TEXT_KINDS, text_tokens,
        Settings("language-model", (WIDTH,), batch_size=32, rate=1e-4, weight_decay=0.01, optimizer="adamw"),
        Lengths((3, 6, 10, 30), (10, 30)),
    ),
}  # fmt: skip
"""Every subject by name."""
