"""What the ranks of a run tell each other, once an epoch: who saw and hit which sample, and what policies keep."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from prunedata.run.adapter import Adapter
from prunedata.run.counts import Tally
from prunedata.types import Arrays

__all__ = ["Ranks"]


class Ranks(Adapter):
    """Merges an epoch over all ranks. An adapter of its own, as only a run of several ranks merges."""

    key = "torch ranks"

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


def _largest(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Of each sample, the largest value on any rank; for flags too, as a sum of uint8 would wrap."""
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    there = torch.from_numpy(values).to(device)
    dist.all_reduce(there, op=dist.ReduceOp.MAX)
    return there.cpu().numpy()
