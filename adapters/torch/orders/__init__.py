"""The orders in which pruned loaders deliver an epoch: a class for each kind of loader, and the choice of one."""

from typing import Any

from torch.utils.data import DataLoader, DistributedSampler

from prunedata.adapters.torch.orders.base import Order
from prunedata.adapters.torch.orders.filtered import FilteredBatches, FilteredSampler
from prunedata.adapters.torch.orders.own import OwnOrder, Uneven
from prunedata.adapters.torch.orders.stream import StreamOrder
from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner

__all__ = ["Order", "StreamOrder", "Uneven", "order_for"]


def order_for(loader: DataLoader[Any], pruner: Pruner, uneven: Uneven | None = None) -> Order:
    """Return the order for a loader over a map-style dataset.

    It is our own in the place of PyTorch's random, sequential or distributed one; otherwise the user's, filtered.
    """
    batch_sampler: Any = loader.batch_sampler
    custom_batches = batch_sampler is not None and not _is_pytorchs(batch_sampler, "BatchSampler")
    if not custom_batches:
        if batch_sampler is None:
            sampler, batch_size, drop_last = loader.sampler, loader.batch_size or 1, loader.drop_last
        else:
            sampler, batch_size, drop_last = batch_sampler.sampler, batch_sampler.batch_size, batch_sampler.drop_last
        distributed = sampler if isinstance(sampler, DistributedSampler) else None
        if _gives_everything_once(sampler, pruner) and (uneven is None or distributed is not None):
            shuffle = type(sampler).__name__ == "RandomSampler" if distributed is None else distributed.shuffle
            return OwnOrder(pruner, batch_size, drop_last, shuffle=shuffle, distributed=distributed, uneven=uneven)
    if uneven is not None:
        raise PrunedataError(
            f"Expected uneven={uneven!r} with a DistributedSampler(dataset) of PyTorch's. Got another sampler, which "
            "itself decides what each rank gets: leave uneven out."
        )
    if custom_batches:
        return FilteredBatches(pruner, batch_sampler)
    if batch_sampler is None and _is_pytorchs(loader.sampler, "BatchSampler"):
        return FilteredBatches(pruner, loader.sampler)
    return FilteredSampler(pruner, sampler, batch_size, drop_last)


def _gives_everything_once(sampler: Any, pruner: Pruner) -> bool:
    """Return whether a sampler is PyTorch's own and gives, with those of other ranks, each sample of the run once."""
    names = ("RandomSampler", "SequentialSampler", "DistributedSampler", "StatefulDistributedSampler")
    if not _is_pytorchs(sampler, *names) or getattr(sampler, "replacement", False):
        return False
    everything: Any = sampler.dataset if isinstance(sampler, DistributedSampler) else sampler
    return len(everything) == pruner.samples


def _is_pytorchs(sampler: Any, *names: str) -> bool:
    """Return whether a sampler is of PyTorch's or torchdata's own class of that name, and not of a user's subclass."""
    kind = type(sampler)
    return kind.__name__ in names and kind.__module__.partition(".")[0] in ("torch", "torchdata")
