"""Replicas that take each step together: they share batches and weights, and add their gradients up."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from benchmarks.distributed.training.replica import Vector

__all__ = ["Team", "TeamBatch"]


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
