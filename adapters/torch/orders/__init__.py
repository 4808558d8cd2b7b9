"""The order in which a pruned loader delivers an epoch: one class for each case, and which of them a loader gets."""

from typing import Any

from torch.utils.data import DataLoader, DistributedSampler

from prunedata.adapters.torch.orders.base import Order
from prunedata.adapters.torch.orders.filtered_batches import FilteredBatches
from prunedata.adapters.torch.orders.filtered_sampler import FilteredSampler
from prunedata.adapters.torch.orders.own import OwnOrder, Uneven
from prunedata.adapters.torch.orders.stream import StreamOrder
from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner

__all__ = ["Order", "StreamOrder", "Uneven", "order_for"]


def order_for(loader: DataLoader[Any], pruner: Pruner, uneven: Uneven | None = None) -> Order:
    """Our own order in the place of PyTorch's random, sequential or distributed one; else the user's, filtered.

    For a loader over a map-style dataset.
    """
    own = _own_order(loader, pruner, uneven)
    if own is not None:
        return own
    if uneven is not None:
        raise PrunedataError(
            f"Expected uneven={uneven!r} with a DistributedSampler(dataset) of PyTorch's. Got another sampler, which "
            "itself says what each rank gets: leave uneven out."
        )
    batch_sampler: Any = loader.batch_sampler
    if batch_sampler is None and _is_pytorchs(loader.sampler, "BatchSampler"):
        return FilteredBatches(pruner, loader.sampler)
    if batch_sampler is not None and not _is_pytorchs(batch_sampler, "BatchSampler"):
        return FilteredBatches(pruner, batch_sampler)
    return FilteredSampler(pruner, *_cut(loader))


def _cut(loader: DataLoader[Any]) -> tuple[Any, int, bool]:
    """The sampler of a loader, and how it cuts batches."""
    batches: Any = loader.batch_sampler
    if batches is None:
        return loader.sampler, loader.batch_size or 1, loader.drop_last
    return batches.sampler, batches.batch_size, batches.drop_last


def _own_order(loader: DataLoader[Any], pruner: Pruner, uneven: Uneven | None) -> OwnOrder | None:
    """Our own order, if the loader's is one of PyTorch's that gives every sample once."""
    if loader.batch_sampler is not None and not _is_pytorchs(loader.batch_sampler, "BatchSampler"):
        return None
    sampler, batch_size, drop_last = _cut(loader)
    if not _gives_everything_once(sampler, pruner):
        return None
    distributed = sampler if isinstance(sampler, DistributedSampler) else None
    if uneven is not None and distributed is None:
        return None
    shuffle = type(sampler).__name__ == "RandomSampler" if distributed is None else distributed.shuffle
    return OwnOrder(pruner, batch_size, drop_last, shuffle=shuffle, distributed=distributed, uneven=uneven)


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
