"""LeNet, small enough to train on a processor."""

from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["LeNet"]


class LeNet(nn.Module):
    """LeNet in the form used on CIFAR-10: two convolutions of 5x5, two poolings, three linear layers.

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
        # The largest of four numbers is the same before and after the ReLU: pooling first leaves it a quarter
        # of the work, and nothing else needs what it overwrites.
        hidden = F.relu_(F.max_pool2d(self.conv1(images), 2))
        hidden = F.relu_(F.max_pool2d(self.conv2(hidden), 2))
        hidden = F.relu_(self.fc1(hidden.flatten(1)))
        scores: Tensor = self.fc3(F.relu_(self.fc2(hidden)))
        return scores
