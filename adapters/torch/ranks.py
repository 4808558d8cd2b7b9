"""What the ranks of a run tell each other, once an epoch: who saw and hit which sample, and what policies keep."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from prunedata.errors import PrunedataError
from prunedata.run.adapter import Adapter
from prunedata.run.counts import Tally
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.types import Arrays

__all__ = ["Ranks", "compare"]


class Ranks(Adapter):
    """Merges an epoch over all ranks. An adapter of its own, as only a run of several ranks merges."""

    key = "torch ranks"

    def __init__(self, pruner: Pruner) -> None:
        self.processes = dist.get_world_size()
        self._pruner = pruner
        self._compared = False

    def begin_epoch(self, epoch: Epoch) -> None:
        """Compare the ranks before the first epoch, and when the run was loaded from a state."""
        if not self._compared:
            compare(self._pruner.standing())
            self._compared = True

    def forget(self) -> None:
        """Compare again."""
        self._compared = False

    def meet(self, excused: int, failure: Exception | None) -> int:
        """Add up what the ranks excuse; raise if one of them failed, naming it."""
        said = _all([excused, failure is not None])
        if said[:, 1].any() and failure is None:
            rank = int(np.flatnonzero(said[:, 1])[0])
            raise PrunedataError(
                f"Expected every rank to end epoch {self._pruner.next_epoch}. Got an error on rank {rank}, which says "
                "what it is: all ranks can end the epoch when it is dealt with."
            )
        return int(said[:, 0].sum())

    def merge(self, tally: Tally, arrays: Arrays) -> None:
        """Merge an epoch's tally and the arrays of policies, in place.

        Whoever saw a sample, and hit it, counts once: padding repeats some. Of what several ranks keep of a sample
        that they saw, the largest holds.
        """
        own = tally.visits > 0
        merged = _largest(own.astype(np.uint8) | ((tally.hits > 0).astype(np.uint8) << 1))
        tally.packed[:] = (merged & 1).astype(np.uint32) | ((merged >> 1).astype(np.uint32) << 16)
        tally.observed = int(np.count_nonzero(merged))
        for array in arrays.values():
            wide = array if array.dtype.kind == "f" else array.astype(np.int64)  # gloo has no uint16
            least = -np.inf if array.dtype.kind == "f" else np.iinfo(np.int64).min
            largest = _largest(np.where(own, wide, wide.dtype.type(least)))
            np.copyto(array, largest.astype(array.dtype), where=merged > 0)


def compare(standing: dict[str, Any]) -> None:
    """Raise :class:`PrunedataError` on every rank if the ranks differ, saying in what."""
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, standing)
    told = []
    for name in dict.fromkeys(name for one in everyone for name in one):
        values = [one.get(name) for one in everyone]
        if any(value != values[0] for value in values):
            told.append(f"{name}: " + ", ".join(f"rank {rank} has {value!r}" for rank, value in enumerate(values)))
    if told:
        raise PrunedataError(
            f"Expected ranks of one run. Got ranks that differ ({'; '.join(told)}). Give all ranks the same arguments, "
            "and let all of them resume, each from the same epoch, or none."
        )


def _device() -> str:
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def _all(numbers: list[int]) -> npt.NDArray[np.int64]:
    """The numbers of every rank, shape (ranks, numbers)."""
    mine = torch.tensor(numbers, dtype=torch.int64, device=_device())
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return torch.stack(everyone).cpu().numpy()


def _largest(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Of each sample, the largest value on any rank; for flags too, as a sum of uint8 would wrap."""
    there = torch.from_numpy(values).to(_device())
    dist.all_reduce(there, op=dist.ReduceOp.MAX)
    return there.cpu().numpy()
