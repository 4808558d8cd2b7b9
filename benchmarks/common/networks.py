"""The ten networks of the paper's Table 1 in their CIFAR form, by name; and how networks compute on a device.

LeNet, VGG, and residual networks, also wide ones (Zagoruyko and Komodakis, 2016). All take float images of shape
(batch, channels, 32, 32) and return scores of shape (batch, classes). Weights are initialised as torch does by default,
from its global seed.
"""

import itertools
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["NETWORKS", "VGG", "LeNet", "ResNet", "WideResNet", "build", "captured", "mixed_precision", "precision_of"]


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


VGG_WIDTHS = (64, 128, 256, 512, 512)
# How many convolutions each stage has; the depth in the name counts them and three linear layers.
VGG_STAGES = {13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


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
        if depth not in VGG_STAGES:
            raise ValueError(f"Expected VGG's depth to be 13, 16 or 19. Got {depth}.")
        layers: list[nn.Module] = []
        for convolutions, (before, width) in zip(
            VGG_STAGES[depth], itertools.pairwise((channels, *VGG_WIDTHS)), strict=True
        ):
            for place in range(convolutions):
                # The normalisation makes the convolution's bias idle; it is there as the published count has it.
                layers.append(nn.Conv2d(width if place else before, width, 3, padding=1))
                layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(VGG_WIDTHS[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features(images).flatten(1))
        return scores


STEM, WIDE = 16, (16, 32, 64)


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
        for stage, width in enumerate(widen * base for base in WIDE):
            for place in range((depth - 4) // 6):
                layers.append(Block(before, width, 2 if place == 0 and stage > 0 else 1))
                before = width
        self.features = nn.Sequential(*layers, nn.BatchNorm2d(before), nn.ReLU(inplace=True))
        self.head = nn.Linear(before, classes)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features(images).mean((2, 3)))
        return scores


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


WARM_UP = 3
"""Calls before the capture: libraries choose their algorithms, and the optimizer makes its state."""


def captured(function: Callable[[], Tensor], generator: torch.Generator) -> Callable[[], Tensor]:
    """Call a function a few times, capture it, and return what launches it.

    Parameters
    ----------
    function : callable
        Works on tensors that stay where they are, and never waits for the device.
    generator : torch.Generator
        Which it draws from. Each launch goes on from the generator's state.

    Returns
    -------
    callable
        Returns the tensor that the function returned when it was captured, with new numbers. If ``generator`` is on a
        CPU, where there is nothing to capture, the function itself.
    """
    if generator.device.type != "cuda":
        for _ in range(WARM_UP):
            function()
        return function
    side = torch.cuda.Stream(generator.device)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        result = function()

    def launch() -> Tensor:
        graph.replay()
        return result

    return launch


def precision_of(device: str) -> torch.dtype:
    """Return what networks compute in on ``"cpu"`` or ``"cuda"``.

    A processor with AVX2 alone took 13 times as long in bfloat16 as in float32; one with AVX-512, half as long.
    """
    imitated = device == "cpu" and "AVX512" not in torch.backends.cpu.get_cpu_capability()
    return torch.float32 if imitated else torch.bfloat16


def mixed_precision(device: str) -> torch.autocast:
    """Return a context in which layers compute in what :func:`precision_of` says.

    It keeps no cast weights: a step that is captured as a graph has to cast those that it finds.
    """
    return torch.autocast(device, torch.bfloat16, enabled=precision_of(device) == torch.bfloat16, cache_enabled=False)
