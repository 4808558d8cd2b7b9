"""The ten networks of the paper's Table 1 in their CIFAR form, by name.

All take float images of shape (batch, channels, 32, 32) and return scores of shape (batch, classes). Weights are
initialised as torch does by default, from its global seed.
"""

from collections.abc import Callable
from functools import partial

from torch import nn

from benchmarks.common.networks.convolutional import VGG, LeNet, ResNet, WideResNet

__all__ = ["NETWORKS", "VGG", "LeNet", "ResNet", "WideResNet", "build"]

_FIXED: dict[str, Callable[[int, int], nn.Module]] = {
    "lenet": LeNet,
    "vgg13": partial(VGG, 13),
    "vgg16": partial(VGG, 16),
    "vgg19": partial(VGG, 19),
    "resnet18": partial(ResNet, 18),
    "resnet34": partial(ResNet, 34),
    "resnet50": partial(ResNet, 50),
}
_WIDE: dict[str, Callable[[int, int, int], nn.Module]] = {
    "wrn10": partial(WideResNet, 10),
    "wrn16": partial(WideResNet, 16),
    "wrn22": partial(WideResNet, 22),
}

NETWORKS = (*_FIXED, *_WIDE)
"""The names of all networks, in the order of the paper's Table 1."""


def build(name: str, channels: int, classes: int, widen: int = 10) -> nn.Module:
    """Return a freshly initialised network; torch's global seed decides its weights.

    `widen` is how many times wider a wide residual network is than a residual network. Others ignore it.

    Raises
    ------
    ValueError
        If no network has that name, or `widen` is less than 1.
    """
    if name not in NETWORKS:
        raise ValueError(f"Expected one of the networks {', '.join(NETWORKS)}. Got {name!r}.")
    if name in _FIXED:
        return _FIXED[name](channels, classes)
    return _WIDE[name](channels, classes, widen)
