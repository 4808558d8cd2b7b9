"""``wrap``: a copy of a DataLoader with another order, whose batches carry the ids of their samples."""

import os
from functools import cache
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from prunedata.adapters.torch.facts import not_a_loader, samples_in
from prunedata.adapters.torch.items import CarryingCollate, Collate, CollatePairs, Indexed, has_own_iterator
from prunedata.adapters.torch.loader import PrunedLoader
from prunedata.adapters.torch.orders import Order, StreamOrder, Uneven, order_for
from prunedata.adapters.torch.prints import trains_on
from prunedata.adapters.torch.run import TorchRun
from prunedata.checks import integer
from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner


def wrap(
    loader: DataLoader[Any],
    pruner: Pruner,
    *,
    with_ids: bool = False,
    uneven: Uneven | None = None,
    id_key: str | None = None,
    ahead: int = 0,
) -> Any:
    """Wrap a DataLoader so that each epoch delivers the samples that the pruner keeps.

    Parameters
    ----------
    loader : DataLoader or StatefulDataLoader
        Over a map-style dataset of ``pruner.samples`` samples, or over a stream that was wrapped before. It is not
        changed. A RandomSampler, SequentialSampler or DistributedSampler is replaced by our own order, seeded by the
        pruner and resumable at any batch. Any other sampler or batch sampler keeps its order and is filtered; a resumed
        epoch then delivers those samples of the sampler that were not yet observed.
    pruner : Pruner
        The run. Iterate the loader inside ``for epoch in pruner.epochs():``. To save within an epoch, each of several
        ranks saves its own pruner's state; between epochs all states are alike.
    with_ids : bool
        Deliver ``(ids, batch)``, for loops that fetch batches before they train on them; ``ids`` is an ndarray of
        int64, shape (n,). Pass them to ``loader.observe(losses, ids)``.
    uneven : {"weights", "drop", "pad"}, optional
        How several ranks share the end of an epoch that doesn't divide evenly. All ranks have the same number of
        batches in any case. ``"weights"``: each sample is delivered once; ``observe`` weights a rank's batch by its
        part of the global batch, so that the ranks' average is the gradient of one process, and a rank without a sample
        trains on one of another rank with weight 0. ``"drop"``: samples that don't divide evenly are left out.
        ``"pad"``: ranks that lack a sample get one a second time, which is recorded once. By default ``"drop"`` for a
        DistributedSampler with ``drop_last``, ``"pad"`` where a trainer iterates, and otherwise ``"weights"``.
    id_key : str, optional
        For a collate function that sorts, drops or replaces samples: without it losses would be recorded for the wrong
        samples. Every sample then carries its id: a mapping at this key, a tuple or list as one more field, the last;
        any other sample becomes a pair. The collate function has to pass the ids on, as ``default_collate`` does, in
        the batch at the same place. They are removed from the batch again. If a mapping already has the key, its
        value is the id, as for a dataset that returns another sample for a broken one. Samples that are None get no id,
        and the collate function has to drop them: call ``pruner.skip(n)`` for them.
    ahead : int
        How many batches the loop fetches before it trains on one: 1 for a loop that copies the next batch to a device
        meanwhile. Then every batch must be observed, in order.

    Returns
    -------
    DataLoader
        Of the loader's own class, with ``observe(losses)``. Its ``len`` is that of the open epoch, or of the next one
        if none is open.

    Raises
    ------
    PrunedataError
        If the loader's dataset does not have ``pruner.samples`` samples, or is a stream that was not wrapped; if the
        pruner has another ``batch_size`` than the loader; or if the loader keeps one iterator for all epochs, such as
        timm's ``MultiEpochsDataLoader``, or has an iterator that changes the batches of PyTorch's. With ``id_key``, if
        several ranks share the samples in another way than ``uneven="drop"``; and at a batch without the ids of its
        samples.
    """
    if not isinstance(loader, DataLoader):
        raise not_a_loader(loader)
    if isinstance(loader, PrunedLoader):
        raise PrunedataError("Expected a DataLoader that is not wrapped yet. Got the result of wrap().")
    _refuse_own_iterator(loader)
    _check_batch_size(loader, pruner)
    if isinstance(loader.dataset, IterableDataset):
        order, replaced = _stream(loader, pruner, uneven, with_ids=with_ids)
    else:
        order, replaced = _map_style(loader, pruner, uneven)
    if id_key is not None:
        _put_ids_in_samples(loader, order, replaced, id_key, pruner, with_ids=with_ids)
    replaced |= order.samplers(loader)
    if loader.generator is None:  # WorkerSeeds seeds it in each epoch
        replaced["generator"] = torch.Generator()
    kind: Any = type(loader)
    pruned = copied(loader, subclass_of(kind), replaced)
    pruned._start(pruner, order, with_ids=with_ids, reseeded=loader.generator is None, ahead=integer("ahead", ahead, 0))
    if not isinstance(loader.dataset, IterableDataset):
        trains_on(pruner, loader.dataset, loader.num_workers, loader)
    order.run.join()
    pruner.observed_by(pruned)
    if with_ids:
        order.run.newest = pruned
    return pruned


def _refuse_own_iterator(loader: DataLoader[Any]) -> None:
    """Raise for a loader that keeps one iterator for all epochs, to keep its workers, or changes batches in it."""
    kind = type(loader)
    where = None
    for name, value in vars(loader).items():
        if name != "_iterator" and any(each.__name__ == "_BaseDataLoaderIter" for each in type(value).__mro__):
            where = f", in its attribute {name!r},"
            break
    # Or it will make one: its batches never end, and it has an __iter__ of its own.
    library = kind.__iter__.__module__.partition(".")[0]
    if where is None and library not in ("torch", "torchdata") and not hasattr(loader.batch_sampler or (), "__len__"):
        where = ""
    if where is not None:
        raise PrunedataError(
            f"Expected a DataLoader that makes its iterator when an epoch begins. Got a {kind.__module__}."
            f"{kind.__qualname__}, which has one{where} for all epochs: the samples that later epochs keep are not "
            "known yet. Wrap a DataLoader(..., num_workers=n, persistent_workers=True), whose workers stay as well, or "
            "leave samples out by weight through watch()."
        )
    if has_own_iterator(loader):
        raise PrunedataError(
            f"Expected a DataLoader whose iterator is PyTorch's. Got a {kind.__module__}.{kind.__qualname__}, whose "
            "own would get the ids of the samples with each batch: change batches in the collate function, as "
            "filter_per_worker=True does in PyTorch Geometric."
        )


def _check_batch_size(loader: DataLoader[Any], pruner: Pruner) -> None:
    """Raise unless the pruner has the batch size of the loader, or that of all ranks' loaders together."""
    size, pruner_size = loader.batch_size, pruner.batch_size
    if size is None or pruner_size is None:  # a batch sampler decides about its batches
        return
    replicas = getattr(loader.sampler, "num_replicas", 1)
    ranks = {1, replicas, TorchRun.group_size(), int(os.environ.get("WORLD_SIZE", "1"))}  # set by torchrun
    if pruner_size not in {size * each for each in ranks}:
        raise PrunedataError(
            f"Expected a Pruner with the loader's batch_size={size}, or that of all ranks together. Got "
            f"batch_size={pruner_size}, by which the run makes pruned epochs whole batches long: give both the same, "
            "or leave it out of the Pruner."
        )


def _map_style(loader: DataLoader[Any], pruner: Pruner, uneven: Uneven | None) -> tuple[Order, dict[str, Any]]:
    """Return the order of a loader over a map-style dataset, and the dataset and collate function that pass ids on."""
    samples = samples_in(loader)
    if samples != pruner.samples:
        raise PrunedataError(
            f"Expected a dataset of {pruner.samples} samples, as the Pruner has. Got one of {samples}: "
            "build the Pruner with len(loader.dataset)."
        )
    if uneven not in (None, "weights", "drop", "pad"):
        raise PrunedataError(f'Expected uneven="weights", "drop" or "pad". Got {uneven!r}.')
    return order_for(loader, pruner, uneven), {
        "dataset": Indexed(loader.dataset),
        "collate_fn": Collate(loader.collate_fn),
    }


def _put_ids_in_samples(
    loader: DataLoader[Any], order: Order, replaced: dict[str, Any], key: str, pruner: Pruner, *, with_ids: bool
) -> None:
    """Replace the collate function by one that puts the ids into the samples (``id_key``)."""
    if loader.batch_sampler is None:
        raise PrunedataError(
            "Expected a loader that makes batches, with id_key. Got one with batch_size=None: leave id_key out."
        )
    stream = isinstance(loader.dataset, IterableDataset)
    ranks = max(order.world, order.run.group_size())
    if ranks > 1 and not stream and getattr(order, "uneven", "drop") != "drop":
        raise PrunedataError(
            f'Expected uneven="drop" with id_key and {ranks} ranks. Got another way to share the samples, which needs '
            'to know their order in a rank\'s last batch: give uneven="drop".'
        )
    order.ids_in_samples = True
    collate = CarryingCollate(loader.collate_fn, key, pruner.samples)
    replaced["collate_fn"] = CollatePairs(collate, batched=True, with_ids=with_ids) if stream else collate


def _stream(
    loader: DataLoader[Any], pruner: Pruner, uneven: Uneven | None, *, with_ids: bool
) -> tuple[Order, dict[str, Any]]:
    """Return the order of a loader over a pruned stream, and the collate function that passes ids on."""
    if not getattr(loader.dataset, "delivers_ids", False):
        raise PrunedataError(
            f"Expected a map-style dataset, or a stream that its own adapter has pruned. Got the IterableDataset "
            f"{type(loader.dataset).__name__}: wrap it first, by pruner.wrap(dataset, index) if it is a WebDataset, "
            "and any other by pruner.wrap(dataset, id=...)."
        )
    if uneven not in (None, "weights", "drop"):
        raise PrunedataError(f'Expected uneven="weights" or "drop" for a stream. Got {uneven!r}.')
    collate = CollatePairs(Collate(loader.collate_fn), batched=loader.batch_size is not None, with_ids=with_ids)
    return StreamOrder(loader, pruner, uneven or "weights"), {"collate_fn": collate}


def copied(loader: DataLoader[Any], kind: type, replaced: dict[str, Any]) -> Any:
    """Return a copy of a loader, of class ``kind``, with the attributes in ``replaced``.

    All other attributes are the user's own objects. ``__init__`` is not called, as the arguments that a subclass of
    the user's was built from are unknown.
    """
    # The user's loader may be within an epoch; the copy begins anew. The last two attributes are StatefulDataLoader's,
    # which reads them when it is iterated.
    replaced = replaced | {"_iterator": None, "_initial_iter_for_state_dict": False, "next_iter_state": None}
    copy: Any = object.__new__(kind)
    vars(copy).update(vars(loader) | replaced)  # DataLoader's __setattr__ refuses some of them
    return copy


@cache
def subclass_of(kind: type) -> type:
    """Return a subclass of a loader's class that prunes.

    For PyTorch's own class its bases are ``(PrunedLoader, DataLoader)``. For a user's subclass, that class comes
    first: so its ``__iter__`` gets batches from ours, without the ids.
    """
    base = next((each for each in kind.__mro__ if each.__module__.partition(".")[0] in ("torch", "torchdata")), None)
    if base is None:
        raise PrunedataError(
            f"Expected a DataLoader of PyTorch's or a subclass. Got {kind.__module__}.{kind.__qualname__}, which wraps "
            "one: wrap the loader first, with with_ids=True, and let the wrapper prepare the result."
        )
    if kind is base:
        return type(f"Pruned{base.__name__}", (PrunedLoader, base), {})
    return type(f"Pruned{kind.__name__}", (kind, subclass_of(base)), {})
