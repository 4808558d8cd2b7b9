"""The networks that demo and benchmarks train, by name."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["NETWORKS", "LeNet", "build"]


class LeNet(nn.Module):
    """LeNet in the form used on CIFAR-10: two convolutions of 5x5, two poolings, three linear layers.

    Takes float images of shape (batch, channels, 32, 32) and returns scores of shape (batch, classes).
    62,006 parameters for 3 channels and 10 classes.
    """

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, images: Tensor) -> Tensor:
        hidden = F.max_pool2d(F.relu(self.conv1(images)), 2)
        hidden = F.max_pool2d(F.relu(self.conv2(hidden)), 2)
        hidden = F.relu(self.fc1(hidden.flatten(1)))
        scores: Tensor = self.fc3(F.relu(self.fc2(hidden)))
        return scores


NETWORKS: dict[str, Callable[[int, int], nn.Module]] = {"lenet": LeNet}
"""Every network: its name, and how to build it from (channels, classes). Images are 32x32 for all."""


def build(name: str, channels: int, classes: int) -> nn.Module:
    """Return a freshly initialised network; torch's global seed decides its weights.

    Raises
    ------
    ValueError
        If no network has that name.
    """
    if name not in NETWORKS:
        raise ValueError(f"Expected one of the networks {', '.join(sorted(NETWORKS))}. Got {name!r}.")
    return NETWORKS[name](channels, classes)
