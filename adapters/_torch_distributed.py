"""What the ranks of a run tell each other: once an epoch, who saw and hit which sample."""

import numpy as np
import torch
import torch.distributed as dist

from prunedata.counts import Tally

__all__ = ["merge_ranks"]


def merge_ranks(tally: Tally) -> None:
    """Merge an epoch's tally over all ranks. Whoever saw a sample, and hit it, counts once: padding repeats some."""
    flags = (tally.visits > 0).astype(np.uint8) | ((tally.hits > 0).astype(np.uint8) << 1)
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    seen = torch.from_numpy(flags).to(device)
    dist.all_reduce(seen, op=dist.ReduceOp.MAX)  # of flags: a sum of uint8 wraps, and gloo has no uint16
    merged = seen.cpu().numpy()
    tally.packed[:] = (merged & 1).astype(np.uint32) | ((merged >> 1).astype(np.uint32) << 16)
    tally.observed = int(np.count_nonzero(merged))
