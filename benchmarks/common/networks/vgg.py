"""VGG with batch normalisation, as it is usual on CIFAR."""

import itertools

from torch import Tensor, nn

__all__ = ["VGG"]

WIDTHS = (64, 128, 256, 512, 512)
# How many convolutions each stage has; the depth in the name counts them and three linear layers.
STAGES = {13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


class VGG(nn.Module):
    """Stages of 3x3 convolutions, each ending with a pooling, and one linear layer in place of VGG's three.

    After five poolings an image of 32x32 is a single pixel, for which the two hidden layers of 4,096 are out of
    scale. 14,728,266 parameters for depth 16, 3 channels and 10 classes.

    Raises
    ------
    ValueError
        If `depth` is not 13, 16 or 19.
    """

    def __init__(self, depth: int, channels: int, classes: int) -> None:
        super().__init__()
        if depth not in STAGES:
            raise ValueError(f"Expected VGG's depth to be 13, 16 or 19. Got {depth}.")
        layers: list[nn.Module] = []
        for convolutions, (before, width) in zip(STAGES[depth], itertools.pairwise((channels, *WIDTHS)), strict=True):
            for place in range(convolutions):
                # The normalisation makes the convolution's bias idle; it is there as the published count has it.
                layers.append(nn.Conv2d(width if place else before, width, 3, padding=1))
                layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(WIDTHS[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features(images).flatten(1))
        return scores
