"""The training step of the study, on CPU or CUDA, where a whole step is one CUDA graph."""

import contextlib
import time
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common.data import ImageSet, crop_and_flip
from benchmarks.common.networks import build, captured, mixed_precision
from benchmarks.study.recipe import Recipe

__all__ = ["Images", "Parallel", "Trainer"]

Reduce = Callable[[Tensor], Tensor]
"""Makes of a batch's losses, shape (n,), the number to call ``backward()`` on."""
Parallel = Literal["", "ddp", "fsdp"]


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
    """A network, its optimizer and its learning rate; one call of :meth:`step` is one batch.

    Parameters
    ----------
    recipe : Recipe
        Equal recipes give equal weights on the same machine.
    images : Images
        To train on. The network and all of a step are on their device.
    classes : int
    compiled : bool
        Run the network through torch.compile.
    graphs : bool, optional
        Capture the step of a whole batch as one CUDA graph, which the host launches at once in place of some hundred
        kernels: gather, augmentation, forward and backward pass, and the optimizer. Default: on a GPU, but not with
        ``parallel``. On a CPU the same code runs without being captured.
    parallel : {"", "ddp", "fsdp"}
        How ranks share the work: not at all, by DistributedDataParallel, or by FSDP2's ``fully_shard``.
    """

    def __init__(
        self,
        recipe: Recipe,
        images: Images,
        classes: int,
        *,
        compiled: bool = False,
        graphs: bool | None = None,
        parallel: Parallel = "",
    ) -> None:
        torch.manual_seed(recipe.seed)
        self.device, self._images, self._recipe = images.pixels.device, images, recipe
        cuda = self.device.type == "cuda"
        if cuda:
            torch.backends.cudnn.benchmark = True
        self.model = build(recipe.network, images.pixels.shape[1], classes, recipe.widen).to(self.device)
        if parallel != "fsdp":  # it refuses weights that are not contiguous
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._forward = _shared(self.model, parallel, self.device)
        if compiled:
            self._forward = torch.compile(self._forward)
        # A graph reads the rate from the device, where it can be set between two launches.
        rate: Any = torch.tensor(recipe.learning_rate, device=self.device) if cuda else recipe.learning_rate
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), rate, momentum=0.9, weight_decay=recipe.weight_decay, nesterov=True, fused=cuda
        )
        # By label; the mean over the samples is 1. What is recorded is the plain loss.
        self._weights = len(images) / (classes * images.labels.bincount(minlength=classes).clamp(min=1))
        self._generator = torch.Generator(self.device)
        self._graphs = cuda and not parallel if graphs is None else graphs
        self._ids = torch.zeros(recipe.batch_size, dtype=torch.int64, device=self.device)
        self._replay: Callable[[], Tensor] | None = None
        self._epoch, self._steps, self._at = 0, 1, 0

    def begin_epoch(self, number: int, steps: int = 1) -> None:
        """Seed the augmentation from the epoch, so that a resumed run draws what the other would have drawn.

        ``steps`` is how many batches the epoch has, for rates that change within it.
        """
        self.model.train()
        self._epoch, self._steps, self._at = number, steps, 0
        if self._graphs and self._replay is None:
            self._replay = self._captured()
        self._generator.manual_seed((self._recipe.seed << 20) + number)

    def step(self, ids: Tensor, reduce: Reduce = torch.mean) -> Tensor:
        """Train on the images at ``ids``, shape (n,), int64 on the device.

        Returns
        -------
        Tensor of float32, shape (n,)
            The losses, detached. The next step may overwrite them.
        """
        self._set_rate(self._recipe.rate_at(self._epoch + self._at / self._steps))
        self._at += 1
        if self._replay is None or reduce is not torch.mean or len(ids) != len(self._ids):
            return self._train_on(ids, reduce)
        self._ids.copy_(ids)
        return self._replay()

    def _train_on(self, ids: Tensor, reduce: Reduce = torch.mean) -> Tensor:
        images, labels = self._images.batch(ids)
        if self._recipe.augment:
            images = crop_and_flip(images, self._generator)
        with self._autocast():
            scores = self._forward(images)
        losses = F.cross_entropy(scores.float(), labels, reduction="none")
        self.optimizer.zero_grad()
        reduce(losses * self._weights[labels] if self._recipe.balanced else losses).backward()
        self.optimizer.step()
        return losses.detach()

    def _captured(self) -> Callable[[], Tensor]:
        """Capture a step of a whole batch, and leave weights and optimizer as they were."""
        model, optimizer = _copied(self.model.state_dict()), _copied(self.optimizer.state_dict())
        replay = captured(lambda: self._train_on(self._ids), self._generator)
        # In place: the graph has the addresses of weights and momentum.
        self.model.load_state_dict(model)
        for parameter, state in self.optimizer.state.items():
            index = next(at for at, each in enumerate(self.model.parameters()) if each is parameter)
            before = optimizer["state"].get(index, {}).get("momentum_buffer")
            state["momentum_buffer"].zero_() if before is None else state["momentum_buffer"].copy_(before)
        return replay

    def _set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

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

    def by_class(self, images: Images, classes: int) -> list[float]:
        """Return how many percent of each class the network gets right."""
        right, labels = self.scores(images).argmax(1) == images.labels.cpu(), images.labels.cpu()
        return [round(100 * float(right[labels == one].float().mean()), 1) for one in range(classes)]

    def clock(self) -> float:
        """Seconds: the processor's on CPU, where a run keeps one core busy; the clock's on CUDA, all work done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            return time.perf_counter()
        return time.process_time()

    def state_dict(self) -> dict[str, Any]:
        """Return network and optimizer; the rate follows from the epoch."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there. Call it before the first epoch: a graph keeps the tensors that it was captured with."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        return mixed_precision(self.device.type)


def _shared(model: nn.Module, parallel: Parallel, device: torch.device) -> Callable[[Tensor], Tensor]:
    """What to call in the model's place where ranks share the work."""
    if parallel == "fsdp":
        from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 (only with ranks)

        fully_shard(model)
    if parallel == "ddp":
        return nn.parallel.DistributedDataParallel(model, [device] if device.type == "cuda" else None)
    return model


def _copied(state: Any) -> Any:
    """A copy of a state dict that shares no tensor with it."""
    if isinstance(state, Tensor):
        return state.clone()
    if isinstance(state, dict):
        return {name: _copied(value) for name, value in state.items()}
    return [_copied(each) for each in state] if isinstance(state, list) else state
