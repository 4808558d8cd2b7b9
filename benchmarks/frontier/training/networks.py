"""The networks of the frontier: layers on features, and a small convolutional one on pixels."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["NETWORKS", "Convolutions", "Layers"]


class Layers(nn.Module):
    """Hidden layers, with dropout after each; the first computes in bfloat16, twice as fast where that is known."""

    def __init__(self, width: int, hidden: Sequence[int], classes: int, dropout: float) -> None:
        super().__init__()
        self.wide, self.drop = nn.Linear(width, hidden[0]), nn.Dropout(dropout)
        self.deep = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(hidden))
        self.last = nn.Linear(hidden[-1], classes)

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores of each class, float32 of shape (n, classes)."""
        with torch.autocast("cpu", torch.bfloat16):
            hidden = self.wide(features)
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


NETWORKS: dict[str, Callable[[int, Sequence[int], int, float], nn.Module]] = {
    "layers": Layers,
    "convolutions": Convolutions,
}
"""By name: called with the features' width, the hidden sizes, the classes and the dropout."""
