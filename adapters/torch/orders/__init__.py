"""The order in which a pruned loader delivers an epoch: one class for each case, and which of them a loader gets."""

from typing import Any

from torch.utils.data import DataLoader, DistributedSampler

from prunedata.adapters.torch.orders.base import Order
from prunedata.adapters.torch.orders.filtered_batches import FilteredBatches
from prunedata.adapters.torch.orders.filtered_sampler import FilteredSampler
from prunedata.adapters.torch.orders.own import OwnOrder
from prunedata.adapters.torch.orders.stream import StreamOrder
from prunedata.run.pruner import Pruner

__all__ = ["Order", "StreamOrder", "order_for"]


def order_for(loader: DataLoader[Any], pruner: Pruner) -> Order:
    """Our own order in the place of PyTorch's random, sequential or distributed one; else the user's, filtered.

    For a loader over a map-style dataset.
    """
    batch_sampler: Any = loader.batch_sampler
    sampler: Any = loader.sampler
    batch_size, drop_last = loader.batch_size or 1, loader.drop_last
    if batch_sampler is None and _is_pytorchs(sampler, "BatchSampler"):
        return FilteredBatches(pruner, sampler)
    if batch_sampler is not None:
        if not _is_pytorchs(batch_sampler, "BatchSampler"):
            return FilteredBatches(pruner, batch_sampler)
        sampler, batch_size, drop_last = batch_sampler.sampler, batch_sampler.batch_size, batch_sampler.drop_last
    if not _gives_everything_once(sampler, pruner):
        return FilteredSampler(pruner, sampler, batch_size, drop_last)
    distributed = sampler if isinstance(sampler, DistributedSampler) else None
    shuffle = type(sampler).__name__ == "RandomSampler" if distributed is None else distributed.shuffle
    return OwnOrder(pruner, batch_size, drop_last, shuffle=shuffle, distributed=distributed)


def _gives_everything_once(sampler: Any, pruner: Pruner) -> bool:
    """Whether a sampler of PyTorch's own gives, with those of other ranks, each sample of the run once."""
    names = ("RandomSampler", "SequentialSampler", "DistributedSampler", "StatefulDistributedSampler")
    if not _is_pytorchs(sampler, *names) or getattr(sampler, "replacement", False):
        return False
    everything: Any = sampler.dataset if isinstance(sampler, DistributedSampler) else sampler
    return len(everything) == pruner.samples


def _is_pytorchs(sampler: Any, *names: str) -> bool:
    """Whether it is PyTorch's own class of that name, or torchdata's, not a user's subclass of it."""
    kind = type(sampler)
    return kind.__name__ in names and kind.__module__.partition(".")[0] in ("torch", "torchdata")
