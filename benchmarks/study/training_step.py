"""The training step of the study, on CPU or CUDA."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.common.augment import crop_and_flip
from benchmarks.common.data import ImageSet
from benchmarks.common.networks import build
from benchmarks.common.networks.precision import mixed_precision
from benchmarks.study.recipe import Recipe

__all__ = ["Images", "Trainer"]


class Images:
    """A data set on the device that trains: a batch is a gather there, and nothing is copied for it.

    Parameters
    ----------
    data : ImageSet
    device : torch.device
    """

    def __init__(self, data: ImageSet, device: torch.device) -> None:
        self.pixels, self.labels = data.images.to(device), data.labels.to(device)
        self.mean, self.std = data.mean.to(device), data.std.to(device)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the images at ``ids``, float32, normalised, channels last, and their labels."""
        images = self.pixels[ids].float().sub_(self.mean).div_(self.std)
        return images.contiguous(memory_format=torch.channels_last), self.labels[ids]


class Trainer:
    """A network, its optimiser and its learning rate; one call of :meth:`step` is one batch.

    Parameters
    ----------
    recipe : Recipe
        Equal recipes give equal weights on the same machine.
    channels, classes : int
    device : torch.device
    compiled : bool
        Run the network through torch.compile.
    """

    def __init__(
        self, recipe: Recipe, channels: int, classes: int, device: torch.device, compiled: bool = False
    ) -> None:
        torch.manual_seed(recipe.seed)
        self.device, self._augment = device, recipe.augment
        self.model = build(recipe.network, channels, classes, recipe.widen).to(device)
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._forward: Callable[[Tensor], Tensor] = torch.compile(self.model) if compiled else self.model
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            recipe.learning_rate,
            momentum=0.9,
            weight_decay=recipe.weight_decay,
            nesterov=True,
        )
        self.rate = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, recipe.milestones, recipe.rate_drop)
        self._seed = recipe.seed
        self._generator = torch.Generator(device)

    def begin_epoch(self, number: int) -> None:
        """Seed the augmentation from the epoch, so that a resumed run draws what the other would have drawn."""
        self._generator.manual_seed((self._seed << 20) + number)
        self.model.train()

    def step(self, images: Tensor, labels: Tensor, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        """Train on one batch; ``reduce`` makes one number of its losses, shape (n,). Return these, detached."""
        if self._augment:
            images = crop_and_flip(images, self._generator)
        with self._autocast():
            scores = self._forward(images)
        losses = F.cross_entropy(scores.float(), labels, reduction="none")
        self.optimizer.zero_grad()
        reduce(losses).backward()
        self.optimizer.step()
        return losses.detach()

    def end_epoch(self) -> None:
        """Move on the learning rate."""
        self.rate.step()

    @torch.no_grad()
    def scores(self, images: Images, batch_size: int = 1000) -> Tensor:
        """Return the network's scores of every image, float32, shape (n, classes), on the CPU; not augmented."""
        self.model.eval()
        scores = []
        for ids in torch.arange(len(images), device=self.device).split(batch_size):
            with self._autocast():
                scores.append(self._forward(images.batch(ids)[0]).float())
        return torch.cat(scores).cpu()

    def test(self, images: Images) -> tuple[float, float]:
        """Return the mean loss over ``images`` and the share of them that the network gets right."""
        scores, labels = self.scores(images), images.labels.cpu()
        return float(F.cross_entropy(scores, labels)), float((scores.argmax(1) == labels).float().mean())

    def clock(self) -> float:
        """Seconds: the processor's on CPU, where a run keeps one core busy; the clock's on CUDA, all work done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            return time.perf_counter()
        return time.process_time()

    def state_dict(self) -> dict[str, Any]:
        """Return network, optimiser and learning rate."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rate": self.rate.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.rate.load_state_dict(state["rate"])

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        return mixed_precision(self.device.type)
