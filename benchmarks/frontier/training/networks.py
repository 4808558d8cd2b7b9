"""The networks of the frontier: layers on features, two convolutional ones, and a language model that is trained on."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common.networks import mixed_precision, precision_of
from benchmarks.frontier.data.texts import WIDTH, language_model, pooled

__all__ = ["NETWORKS", "Convolutions", "LanguageModel", "Layers", "NormalisedConvolutions"]


class Layers(nn.Module):
    """Hidden layers, with dropout after each; the first computes in bfloat16 where the processor does."""

    def __init__(self, width: int, hidden: Sequence[int], classes: int, dropout: float) -> None:
        super().__init__()
        self.wide, self.drop = nn.Linear(width, hidden[0]), nn.Dropout(dropout)
        self.deep = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(hidden))
        self.last = nn.Linear(hidden[-1], classes)

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores of each class, float32 of shape (n, classes)."""
        with mixed_precision("cpu"):
            hidden = self.wide(features.to(precision_of("cpu")))
        hidden = self.drop(F.relu(hidden.float()))
        for layer in self.deep:
            hidden = self.drop(F.relu(layer(hidden)))
        scores: Tensor = self.last(hidden)
        return scores


class Convolutions(nn.Module):
    """Two convolutions of stride 2 on square images of one channel, given as rows, and a hidden layer."""

    def __init__(self, width: int, hidden: Sequence[int], classes: int, dropout: float) -> None:
        super().__init__()
        first, second, last = hidden
        self.side = round(width**0.5)
        if self.side**2 != width:
            raise ValueError(f"Expected square images. Got rows of {width} pixels.")
        self.seen, self.formed = nn.Conv2d(1, first, 5, 2, 2), nn.Conv2d(first, second, 3, 2, 1)
        small = (self.side + 3) // 4
        self.wide, self.drop = nn.Linear(second * small**2, last), nn.Dropout(dropout)
        self.last = nn.Linear(last, classes)

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores of each class, float32 of shape (n, classes)."""
        images = features.float().view(-1, 1, self.side, self.side)
        formed = F.relu(self.formed(F.relu(self.seen(images))))
        scores: Tensor = self.last(self.drop(F.relu(self.wide(formed.flatten(1)))))
        return scores


class NormalisedConvolutions(nn.Module):
    """Five convolutions with batch normalisation, of images in three colours, given as rows.

    It computes in bfloat16 where the processor does. In training half of the images are mirrored.
    """

    def __init__(self, width: int, hidden: Sequence[int], classes: int, dropout: float) -> None:
        super().__init__()
        first, second, third = hidden
        self.side = round((width / 3) ** 0.5)
        if 3 * self.side**2 != width:
            raise ValueError(f"Expected square images in three colours. Got rows of {width} numbers.")
        self.formed = nn.Sequential(
            nn.Conv2d(3, first, 4, 2, 1, bias=False), nn.BatchNorm2d(first), nn.ReLU(),
            *_halved(first, second), *_halved(second, third), nn.AdaptiveMaxPool2d(1),
        )  # fmt: skip
        self.drop, self.last = nn.Dropout(dropout), nn.Linear(third, classes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores of each class, float32 of shape (n, classes)."""
        images = features.to(precision_of("cpu")).view(-1, 3, self.side, self.side)
        if self.training:
            mirrored = torch.rand(len(images), 1, 1, 1) < 0.5
            images = torch.where(mirrored, images.flip(3), images)
        with mixed_precision("cpu"):
            formed = self.formed(images.contiguous(memory_format=torch.channels_last))
        scores: Tensor = self.last(self.drop(formed.flatten(1).float()))
        return scores


def _halved(width: int, wider: int) -> list[nn.Module]:
    """Two convolutions; the image's sides are halved between them."""
    return [
        nn.Conv2d(width, wider, 3, 1, 1, bias=False), nn.MaxPool2d(2), nn.BatchNorm2d(wider), nn.ReLU(),
        nn.Conv2d(wider, wider, 3, 1, 1, bias=False), nn.BatchNorm2d(wider), nn.ReLU(),
    ]  # fmt: skip


class LanguageModel(nn.Module):
    """A pretrained language model, all of which is trained further, on texts given as rows of tokens."""

    def __init__(self, width: int, hidden: Sequence[int], classes: int, dropout: float) -> None:
        super().__init__()
        self.model, self.drop = language_model(), nn.Dropout(dropout)
        self.last = nn.Linear(WIDTH, classes)

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores of each class, float32 of shape (n, classes)."""
        with mixed_precision("cpu"):
            hidden = pooled(self.model, features)
        scores: Tensor = self.last(self.drop(hidden.float()))
        return scores


NETWORKS: dict[str, Callable[[int, Sequence[int], int, float], nn.Module]] = {
    "layers": Layers,
    "convolutions": Convolutions,
    "normalised-convolutions": NormalisedConvolutions,
    "language-model": LanguageModel,
}
"""By name: called with the features' width, the hidden sizes, the classes and the dropout."""
