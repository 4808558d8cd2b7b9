"""Replicas of the model: one makes batches and gradients of them; a team takes each step together."""

import os
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from benchmarks.common.data import Data, crop_and_flip
from benchmarks.distributed.training.task import Parts, Training

__all__ = ["Batch", "Checkpoint", "RMSProp", "Replica", "Team", "TeamBatch", "Vector"]


Vector = npt.NDArray[np.float32]
Batch = tuple[Tensor, Tensor]
"""Images, and their labels."""


class Replica:
    """A replica of the model, on a GPU if there is one. Its weights come from outside.

    ``rank`` counts the replicas of all workers.

    Batch norm's running statistics stay in each replica, and take no part in training. Those of the first are tested
    with.
    """

    def __init__(self, task: Training, data: Data, rank: int = 0) -> None:
        gpus = torch.cuda.device_count()
        self._device = torch.device("cuda", rank % gpus) if gpus else torch.device("cpu")
        self._model = task.build(data).to(self._device)
        self._data, self._task, self._rank = data, task, rank
        self._slowed = task.slow[1] if task.slow is not None and task.slow[0] == rank else 0.0
        self._size = sum(one.numel() for one in self._model.parameters())
        self._ballast = _ballast(task, self._size)
        self.parts = Parts()

    def weights(self) -> Vector:
        """All weights, shape (n,), and ballast behind them if the task has some."""
        found: Vector = parameters_to_vector(self._model.parameters()).detach().cpu().numpy()
        return _joined(found, np.zeros_like(self._ballast))

    def load_weights(self, weights: Vector) -> None:
        """Set all weights."""
        own = torch.from_numpy(weights[: self._size])
        vector_to_parameters(own.to(self._device), self._model.parameters())

    def batch(self, ids: npt.NDArray[np.integer[Any]], *place: int) -> Batch:
        """Fetch samples. ``place``, as the number of the epoch and of the batch, decides how they are augmented."""
        with self.parts("data"):
            images, labels = self._data.train.batch(torch.from_numpy(np.array(ids, dtype=np.int64)))
            if self._task.augment:
                state = np.random.SeedSequence([self._task.seed, self._rank, *place]).generate_state(1)
                images = crop_and_flip(images, torch.Generator().manual_seed(int(state[0])))
            return images, labels

    def gradient(self, batch: Batch, size: int, weights: Vector | None) -> tuple[Vector, Vector]:
        """Return this replica's part of the gradient of a mean, and the loss of each of its samples.

        Parameters
        ----------
        batch : Batch
            This replica's samples. There may be none.
        size : int
            Samples of all replicas together. The sum of all parts is the gradient of the mean over them, however
            unevenly they share the batch.
        weights : ndarray of float32, shape (n,), optional
            How much each of the losses counts.

        Returns
        -------
        gradient, losses : ndarray of float32, shape (parameters,) and (n,)
        """
        begun = time.perf_counter()
        gradient, losses = self._computed(batch, size, weights)
        with self.parts("device"):
            # What was computed here is part of what the device does: only the rest is slept.
            seconds = (self._task.device_time * len(losses) + self._slowed) * self._task.stretch
            time.sleep(max(0.0, seconds - (time.perf_counter() - begun)))
        return _joined(gradient, self._ballast), losses

    def _computed(self, batch: Batch, size: int, weights: Vector | None) -> tuple[Vector, Vector]:
        images, labels = (part.to(self._device) for part in batch)
        parameters = list(self._model.parameters())
        if not len(labels):
            return np.zeros(self._size, np.float32), np.zeros(0, np.float32)
        with self.parts("forward"):
            losses = F.cross_entropy(self._model(images), labels, reduction="none")
            counted = losses if weights is None else losses * torch.from_numpy(weights).to(self._device)
            mean = counted.sum() / size
            self._finish()
        with self.parts("backward"):
            gradients = torch.autograd.grad(mean, parameters)
            flat: Vector = parameters_to_vector(gradients).cpu().numpy()
        return flat, losses.detach().cpu().numpy()

    def buffers(self) -> list[Tensor]:
        """Batch norm's statistics, in their order in the network."""
        return [buffer.cpu() for buffer in self._model.buffers()]

    def load_buffers(self, buffers: list[Tensor]) -> None:
        """Set them."""
        for mine, given in zip(self._model.buffers(), buffers, strict=True):
            mine.copy_(given)

    def accuracy(self, batch: int = 256) -> float:
        """Share of the test images that are told right."""
        self._model.eval()
        test, right = self._data.test, 0
        with torch.no_grad():
            for ids in torch.arange(len(test)).split(batch):
                images, labels = test.batch(ids)
                right += int((self._model(images.to(self._device)).argmax(1).cpu() == labels).sum())
        self._model.train()
        return right / len(test)

    def _finish(self) -> None:
        """Wait for the device, so that each part gets its own seconds."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _joined(own: Vector, ballast: Vector) -> Vector:
    return np.concatenate([own, ballast]) if ballast.size else own


def _ballast(task: Training, size: int) -> Vector:
    """What is behind a gradient of so many values: drawn, the same in every process and step."""
    if task.parameters is None:
        return np.zeros(0, np.float32)
    if task.parameters < size:
        raise ValueError(f"Expected at least the {size:,} weights of {task.network}. Got {task.parameters:,}.")
    drawn: Vector = np.random.default_rng(task.seed).standard_normal(task.parameters - size, np.float32)
    return drawn * np.float32(1e-3)


@dataclass
class RMSProp:
    """RMSProp as TensorFlow 1 has it, for one vector of weights, shape (n,), float32; the defaults are the study's.

    It differs from today's in two things: ``epsilon`` is inside the square root, and the average of squared gradients
    starts at 1 instead of 0. With the study's ``epsilon`` of 1 both matter.

    A step is ``average = decay * average + (1 - decay) * g**2`` and ``weights -= learning_rate * g / sqrt(average +
    epsilon)``, where ``g`` is the gradient with ``weight_decay * weights`` added.
    """

    weights: Vector
    learning_rate: float = 0.1
    decay: float = 0.9
    epsilon: float = 1.0
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        self.weights = np.array(self.weights, dtype=np.float32)
        self.average = np.ones_like(self.weights)

    def step(self, gradient: Vector) -> None:
        """Apply one gradient."""
        if gradient.shape != self.weights.shape:
            raise ValueError(f"Expected a gradient of shape {self.weights.shape}. Got {gradient.shape}.")
        whole = gradient + np.float32(self.weight_decay) * self.weights
        self.average += np.float32(1 - self.decay) * (whole * whole - self.average)
        self.weights = self.weights - np.float32(self.learning_rate) * whole / np.sqrt(
            self.average + np.float32(self.epsilon)
        )


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands.

    Attributes
    ----------
    weights, average : ndarray of float32, shape (n,)
        The weights, and the optimiser's average of squared gradients.
    run : dict
        Of the pruner, or of the dealer.
    buffers : list of Tensor
        Batch norm's.
    """

    weights: Vector
    average: Vector
    run: dict[str, Any]
    buffers: list[Any]

    def save(self, file: Path) -> None:
        """Write it whole: whoever is killed meanwhile leaves the one before."""
        part = file.with_suffix(".part")
        with part.open("wb") as out:
            torch.save(
                {
                    "weights": torch.from_numpy(self.weights),
                    "average": torch.from_numpy(self.average),
                    "run": self.run,
                    "buffers": self.buffers,
                },
                out,
            )
            out.flush()
            os.fsync(out.fileno())
        part.replace(file)

    @classmethod
    def load(cls, file: Path) -> "Checkpoint | None":
        """Read what :meth:`save` wrote; None if there is nothing yet."""
        if not file.exists():
            return None
        held = torch.load(file, weights_only=True)
        return cls(held["weights"].numpy(), held["average"].numpy(), held["run"], held["buffers"])


@dataclass(frozen=True)
class TeamBatch:
    """A batch before it is split over replicas: its ids and, where the policy weighs them, their weights, shape (n,).

    ``epoch`` and ``number`` say which batch it is.
    """

    ids: npt.NDArray[np.integer[Any]]
    weights: Vector | None
    epoch: int
    number: int


class Team:
    """The replicas of the gloo group that this process is in, or this one alone if it is in none.

    Batches are announced in a group of their own, so that a thread can do it while gradients are added up.

    Parameters
    ----------
    within : float
        Seconds after which a call raises, if a replica does not come.
    """

    def __init__(self, within: float) -> None:
        self.rank, self.size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        if self.size > 1:
            self._batches = dist.new_group(timeout=timedelta(seconds=within))

    def mine(self, whole: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Take this replica's part of a batch: sizes differ by at most one."""
        return whole[self.rank :: self.size]

    def announce(self, whole: TeamBatch | None) -> TeamBatch | None:
        """Give all replicas the batch that the first one gives; None there says that no more will come.

        Only the first replica's argument counts.
        """
        if self.size == 1:
            return whole
        header = torch.zeros(4, dtype=torch.int64)
        if self.rank == 0 and whole is not None:
            header[:] = torch.tensor([len(whole.ids), whole.epoch, whole.number, whole.weights is not None])
        dist.broadcast(header, 0, group=self._batches)
        size, epoch, number, weighted = header.tolist()
        if not size:
            return None
        both = torch.ones(2, size, dtype=torch.float64)  # which holds ids up to 2**53
        if self.rank == 0 and whole is not None:
            both[0] = torch.from_numpy(np.array(whole.ids))
            if whole.weights is not None:
                both[1] = torch.from_numpy(np.array(whole.weights))
        dist.broadcast(both, 0, group=self._batches)
        ids, weights = both.numpy()
        return TeamBatch(ids.astype(np.int64), weights.astype(np.float32) if weighted else None, epoch, number)

    def share(self, vector: Vector) -> Vector:
        """Give all replicas the first one's vector; the others' is overwritten."""
        if self.size > 1:
            dist.broadcast(torch.from_numpy(vector), 0)
        return vector

    def add_up(self, vector: Vector) -> Vector:
        """Replace the vector by the sum over all replicas."""
        if self.size > 1:
            dist.all_reduce(torch.from_numpy(vector))
        return vector
