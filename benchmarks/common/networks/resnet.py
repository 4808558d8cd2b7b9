"""Residual networks with the stem of CIFAR: one 3x3 convolution, no pooling."""

from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["ResNet"]

WIDTHS = (64, 128, 256, 512)


class Basic(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *_convolution(before, width, 3, stride),
            nn.ReLU(inplace=True),
            *_convolution(width, width, 3),
        )
        self.shortcut = _shortcut(before, width * self.expansion, stride)

    def forward(self, images: Tensor) -> Tensor:
        return F.relu_(self.residual(images) + self.shortcut(images))


class Bottleneck(nn.Module):
    """A 3x3 convolution between two of 1x1, the last with four times the channels, beside a shortcut."""

    expansion = 4

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *_convolution(before, width, 1),
            nn.ReLU(inplace=True),
            *_convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *_convolution(width, width * self.expansion, 1),
        )
        self.shortcut = _shortcut(before, width * self.expansion, stride)

    def forward(self, images: Tensor) -> Tensor:
        return F.relu_(self.residual(images) + self.shortcut(images))


# The block of each depth, and how many of it each stage has.
STAGES: dict[int, tuple[type[Basic] | type[Bottleneck], tuple[int, ...]]] = {
    18: (Basic, (2, 2, 2, 2)),
    34: (Basic, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
}


class ResNet(nn.Module):
    """The ImageNet networks' four stages of 64 to 512 channels on images of 32x32, which the stem keeps whole.

    11,173,962 parameters for depth 18, 21,282,122 for 34, 23,520,842 for 50, with 3 channels and 10 classes.

    Raises
    ------
    ValueError
        If `depth` is not 18, 34 or 50.
    """

    def __init__(self, depth: int, channels: int, classes: int) -> None:
        super().__init__()
        if depth not in STAGES:
            raise ValueError(f"Expected ResNet's depth to be 18, 34 or 50. Got {depth}.")
        block, stages = STAGES[depth]
        layers: list[nn.Module] = [*_convolution(channels, WIDTHS[0], 3), nn.ReLU(inplace=True)]
        before = WIDTHS[0]
        for width, blocks in zip(WIDTHS, stages, strict=True):
            for place in range(blocks):
                layers.append(block(before, width, 2 if place == 0 and width != WIDTHS[0] else 1))
                before = width * block.expansion
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(before, classes)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features(images).mean((2, 3)))
        return scores


def _convolution(before: int, after: int, size: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    """Return a convolution that keeps the image's size, but for its stride, and its normalisation."""
    return nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(after)


def _shortcut(before: int, after: int, stride: int) -> nn.Module:
    """Return the identity, or a 1x1 convolution where the shape changes."""
    if stride == 1 and before == after:
        return nn.Identity()
    return nn.Sequential(*_convolution(before, after, 1, stride))
