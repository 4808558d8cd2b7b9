"""PyTorch: ``wrap(loader, pruner)`` returns the same loader over the kept samples.

It replaces the sampler, in the main process, so that workers need no mask. Each sample's id travels with its batch,
from the sampler through the worker and the collate function, and is removed just before the batch is delivered: in
whatever order workers answer, a batch keeps its ids.
"""

try:
    import torch  # noqa: F401 (only to say what is missing)
except ImportError as error:
    raise ImportError("prunedata.adapters.torch needs PyTorch: pip install torch") from error

from torch.utils.data import IterableDataset

from prunedata.adapters.torch.facts import facts, keys_in, samples_in
from prunedata.adapters.torch.lost import name_lost_ranks
from prunedata.adapters.torch.stream import TorchStream
from prunedata.adapters.torch.watch import watch
from prunedata.adapters.torch.wrap import wrap

ELSEWHERE = (IterableDataset,)
"""Classes of PyTorch's that ``prunedata.adapters.iterable`` wraps."""

__all__ = ["ELSEWHERE", "TorchStream", "facts", "keys_in", "name_lost_ranks", "samples_in", "watch", "wrap"]
