"""InfoBatch itself, from a checkout of its repository."""

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.common.drawing import PINK
from benchmarks.common.infobatch import InfoBatch
from benchmarks.study.arm import Arm, Ids, PlannedEpoch, Task
from benchmarks.study.choosers import cut

DELTA = 0.875
BELOW_MEAN = 0.6
"""About this share of losses lies below their mean. InfoBatch prunes among these; its own visits are reported."""


class Peer:
    """InfoBatch as its own file has it, driven without its hook into DataLoader, which torch 2.13 breaks."""

    pruner, is_weighed = None, True

    def __init__(self, task: Task) -> None:
        if task.infobatch is None:
            raise ValueError("Expected the path of InfoBatch's checkout for the arm infobatch. Got none.")
        self._task, self._next, self.overhead = task, 0, 0.0
        ratio = min(0.9, task.saving / (DELTA * BELOW_MEAN))
        self._peer = InfoBatch(task.infobatch).wrap(task.samples, task.epochs, ratio, DELTA)
        self._sampler = self._peer.sampler  # this draws once; each epoch draws anew
        self._sampler.iterations = 0

    def epochs(self) -> Iterator[PlannedEpoch]:
        while self._next < self._task.epochs:
            started = perf_counter()
            self._sampler.iterations = self._next
            order = np.fromiter(iter(self._sampler), dtype=np.int64)
            self.overhead += perf_counter() - started
            steps = -(-len(order) // self._task.batch_size)
            yield PlannedEpoch(self._next, len(order) < len(self._peer), cut(order, self._task.batch_size), steps)
            self._next += 1

    def reduce(self, ids: Ids, losses: Tensor) -> Tensor:
        # It scales its tensor in place, hence the copy, whose time is not charged to it.
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


ARMS = (
    Arm(
        name="infobatch",
        what="InfoBatch itself, from its checkout",
        choose=Peer,
        groups=("paper", "late", "digits"),
        order=110,
        column="InfoBatch",
        column_order=80,
        colour=PINK,
        marker="X",
        saves_as_asked=False,
        needs_infobatch=True,
    ),
)
