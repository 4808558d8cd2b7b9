"""Wide residual networks (Zagoruyko and Komodakis, 2016), any depth and width."""

from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["WideResNet"]

STEM, WIDTHS = 16, (16, 32, 64)


class Block(nn.Module):
    """Normalisation and ReLU come before each of two 3x3 convolutions; the shortcut adds nothing of its own.

    Where the shape changes, the shortcut is a 1x1 convolution of what the first ReLU gave.
    """

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(before)
        self.conv1 = nn.Conv2d(before, width, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        same = stride == 1 and before == width
        self.shortcut = None if same else nn.Conv2d(before, width, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        active = F.relu_(self.norm1(images))
        residual: Tensor = self.conv2(F.relu_(self.norm2(self.conv1(active))))
        return residual + (images if self.shortcut is None else self.shortcut(active))


class WideResNet(nn.Module):
    """Three stages of `(depth - 4) / 6` blocks with 16, 32 and 64 times `widen` channels, without dropout.

    36,479,194 parameters for depth 28, `widen` 10, 3 channels and 10 classes.

    Raises
    ------
    ValueError
        If `depth` is not 6n + 4 for an n of at least 1, or `widen` is less than 1.
    """

    def __init__(self, depth: int, channels: int, classes: int, widen: int = 10) -> None:
        super().__init__()
        if depth < 10 or depth % 6 != 4:
            raise ValueError(f"Expected a depth of 6n + 4, such as 10, 16, 22 or 28. Got {depth}.")
        if widen < 1:
            raise ValueError(f"Expected a widening factor of 1 or more. Got {widen}.")
        layers: list[nn.Module] = [nn.Conv2d(channels, STEM, 3, padding=1, bias=False)]
        before = STEM
        for stage, width in enumerate(widen * base for base in WIDTHS):
            for place in range((depth - 4) // 6):
                layers.append(Block(before, width, 2 if place == 0 and stage > 0 else 1))
                before = width
        self.features = nn.Sequential(*layers, nn.BatchNorm2d(before), nn.ReLU(inplace=True))
        self.head = nn.Linear(before, classes)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features(images).mean((2, 3)))
        return scores
