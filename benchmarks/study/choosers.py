"""The ways to choose samples, behind one face: an arm gives the batches of each epoch and takes their losses."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.common.infobatch import InfoBatch
from benchmarks.study.data import StudyData
from benchmarks.study.recipe import Recipe
from benchmarks.study.tried import FairLoss, RefreshedLoss, SoftLoss
from prunedata import DroppingCount, EasyPruning, Known, LossRanked, Policy, Pruner, Random, RunningLoss
from prunedata.adapters._torch_losses import Recorder

__all__ = ["Arm", "Plan", "build_arm"]

Ids = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Plan:
    """One epoch: its number, whether samples are left out, and the ids of its batches."""

    number: int
    pruned: bool
    batches: Iterator[Ids]


class Arm(Protocol):
    """A way to choose samples."""

    @property
    def overhead(self) -> float:
        """Seconds spent on choosing so far; 0 where that is not measured."""

    def epochs(self) -> Iterator[Plan]:
        """Yield the epochs that are left."""

    def reduce(self, ids: Ids, losses: Tensor) -> Tensor:
        """Take a batch's losses, shape (n,), and return what to call backward() on."""

    def state_dict(self) -> dict[str, Any]:
        """Return where the arm stands between two epochs."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""


def build_arm(recipe: Recipe, data: StudyData, infobatch: Path | None = None) -> Arm:
    """Return the arm of a recipe on its data; ``infobatch`` is the checkout of that peer."""
    samples = len(data.train)
    if recipe.arm in ("regular", "fewer-epochs"):
        return Everything(recipe, samples)
    if recipe.arm == "infobatch":
        if infobatch is None:
            raise ValueError("Expected the path of InfoBatch's checkout for the arm infobatch. Got none.")
        return Peer(recipe, samples, infobatch)
    policies: dict[str, Policy | Literal["auto"]] = {
        "auto": "auto",
        "running-loss": RunningLoss(),
        "running-loss-soft": SoftLoss(),
        "running-loss-fair": FairLoss(),
        "running-loss-refreshed": RefreshedLoss(),
        "known-wrong": _known(data.wrong),
        "loss-ranked": LossRanked(),
        "easy": EasyPruning(),
        "random": Random(),
        "random-run": Random(),
        "dropping-count": DroppingCount(),
        "dropping-count-run": DroppingCount(tolerance=1, rank="run"),
    }
    return Pruned(recipe, samples, policies[recipe.arm], data.classes)


def _known(wrong: NDArray[np.bool_]) -> Policy:
    @dataclass(frozen=True)
    class KnownWrong:
        tolerance: float = 0.0
        needs_losses = False

        def scores(self, known: Known) -> NDArray[np.uint8]:
            return wrong.view(np.uint8)

    return KnownWrong()


class Everything:
    """Train on all samples: a plain loop that knows nothing of pruning."""

    overhead = 0.0

    def __init__(self, recipe: Recipe, samples: int) -> None:
        self._recipe, self._samples, self._next = recipe, samples, 0

    def epochs(self) -> Iterator[Plan]:
        while self._next < self._recipe.trained_epochs:
            order = np.random.default_rng((self._recipe.seed, self._next)).permutation(self._samples)
            yield Plan(self._next, False, _cut(order, self._recipe.batch_size))
            self._next += 1

    def reduce(self, ids: Ids, losses: Tensor) -> Tensor:
        return losses.mean()

    def state_dict(self) -> dict[str, Any]:
        return {"next": self._next + 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._next = state["next"]


class Pruned:
    """Train on what a pruner keeps."""

    def __init__(self, recipe: Recipe, samples: int, policy: Policy | Literal["auto"], classes: int) -> None:
        self._batch_size = recipe.batch_size
        self.pruner = Pruner(
            samples,
            recipe.schedule,
            prune=recipe.prune,
            policy=policy,
            seed=recipe.seed,
            batch_size=recipe.batch_size,
            classes=classes,
        )
        self._recorder = Recorder(self.pruner)

    @property
    def overhead(self) -> float:
        return float(sum(record["overhead"] for record in self.pruner.history))

    def epochs(self) -> Iterator[Plan]:
        for epoch in self.pruner.epochs():
            yield Plan(epoch.number, epoch.pruned, epoch.batches(self._batch_size))

    def reduce(self, ids: Ids, losses: Tensor) -> Tensor:
        self._recorder.add(ids, losses)
        weights = self.pruner.current.weights
        if weights is None:
            return losses.mean()
        return (torch.from_numpy(weights[ids]).to(losses.device) * losses).mean()

    def state_dict(self) -> dict[str, Any]:
        return self.pruner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.pruner.load_state_dict(state)


class Peer:
    """InfoBatch as its own file has it, driven without its hook into DataLoader, which torch 2.13 breaks."""

    DELTA = 0.875
    BELOW_MEAN = 0.6
    """About this share of losses lies below their mean, of which it prunes; its own visits are what is reported."""

    def __init__(self, recipe: Recipe, samples: int, checkout: Path) -> None:
        self._recipe, self._next, self.overhead = recipe, 0, 0.0
        ratio = min(0.9, recipe.saving / (self.DELTA * self.BELOW_MEAN))
        self._peer = InfoBatch(checkout).wrap(samples, recipe.epochs, ratio, self.DELTA)
        self._sampler = self._peer.sampler  # this draws once; each epoch draws anew
        self._sampler.iterations = 0

    def epochs(self) -> Iterator[Plan]:
        while self._next < self._recipe.epochs:
            started = perf_counter()
            self._sampler.iterations = self._next
            order = np.fromiter(iter(self._sampler), dtype=np.int64)
            self.overhead += perf_counter() - started
            yield Plan(self._next, len(order) < len(self._peer), _cut(order, self._recipe.batch_size))
            self._next += 1

    def reduce(self, ids: Ids, losses: Tensor) -> Tensor:
        # It scales the tensor that it is given in place, and takes the mean, as we do outside of what we charge to us.
        own = losses.clone()
        started = perf_counter()
        self._peer.set_active_indices(torch.from_numpy(ids))
        mean = torch.as_tensor(self._peer.update(own))
        self.overhead += perf_counter() - started
        return mean

    def state_dict(self) -> dict[str, Any]:
        return {"next": self._next + 1, "scores": self._peer.scores.clone(), "overhead": self.overhead}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._next, self.overhead = state["next"], state["overhead"]
        self._peer.scores.copy_(state["scores"])


def _cut(order: Ids, size: int) -> Iterator[Ids]:
    return (order[first : first + size] for first in range(0, len(order), size))
