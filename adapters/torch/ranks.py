"""What the ranks of a run tell each other, once an epoch: who saw and hit which sample, and what policies keep."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from prunedata.run.counts import Tally

__all__ = ["merge_ranks"]


def merge_ranks(tally: Tally, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Merge an epoch's tally and a policy's arrays over all ranks.

    Whoever saw a sample, and hit it, counts once: padding repeats some. Of what several ranks keep of a sample that
    they saw, the largest holds.
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
