"""``wrap``: what a DataLoader is made of, looked at and put together again around another order."""

import os
from functools import cache
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from prunedata.adapters.torch.carried import CarryingCollate
from prunedata.adapters.torch.items import Collate, CollatePairs, Indexed
from prunedata.adapters.torch.loader import PrunedLoader
from prunedata.adapters.torch.orders import Order, StreamOrder, Uneven, order_for
from prunedata.adapters.torch.prints import names_in, prints_in
from prunedata.adapters.torch.run import TorchRun
from prunedata.checks import integer
from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner

__all__ = ["wrap"]


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
        Over a map-style dataset of ``pruner.samples`` samples, or over a stream that its own adapter has pruned. It
        is left as it is. A RandomSampler or SequentialSampler (or DistributedSampler) becomes our own order, seeded
        by the pruner and resumable at any batch; any other sampler or batch sampler keeps its order and is filtered,
        and an epoch that is resumed goes on with what it gives of the samples not yet observed.
    pruner : Pruner
        The run. Iterate the loader inside ``for epoch in pruner.epochs():``. Of several ranks each saves its own
        pruner's state within an epoch; between epochs all are alike.
    with_ids : bool
        Deliver ``(ids, batch)`` for loops that fetch batches before they train on them; ``ids`` is an ndarray of
        int64, shape (n,). Give them back with ``loader.observe(losses, ids)``.
    uneven : {"weights", "drop", "pad"}, optional
        What becomes of an epoch's end that several ranks cannot share evenly. Every rank has as many batches in any
        case. ``"weights"``: each sample comes once; ``observe`` weighs a rank's batch by its part of the global
        batch, so that what the ranks average is the gradient of one process, and a rank that gets nothing trains on
        a sample of another's with the weight 0. ``"drop"``: the samples that don't go round are left out. ``"pad"``:
        ranks that lack a sample get one again; it is recorded once. By default ``"drop"`` for a DistributedSampler
        with ``drop_last``, ``"pad"`` where a trainer iterates, and otherwise ``"weights"``.
    id_key : str, optional
        For a collate function that sorts, drops or replaces samples, whose ids would be taken for others'. Every sample
        then has its id: a mapping at this key, a tuple or list as one more field, the last; any other sample becomes a
        pair. The collate function has to pass the ids on, as ``default_collate`` does, in the batch at the same
        place. They are taken out of the batch again. A mapping that has the key already keeps what the dataset gave
        it, as one may that gives another sample for a broken one. Samples that are None get no id, and are to be
        dropped: say so by ``pruner.skip(n)``.
    ahead : int
        How many batches the loop fetches before it trains on one, as 1 for a loop that copies the next batch to a
        device meanwhile. Then every batch has to be observed, in its order.

    Returns
    -------
    DataLoader
        Of the given loader's own class, with ``observe(losses)``. Its ``len`` is that of the epoch that is open,
        or else of the next.

    Raises
    ------
    PrunedataError
        If the loader's dataset is not of ``pruner.samples`` samples, or is a stream that no adapter has pruned; if the
        pruner's ``batch_size`` is another than the loader's; or if the loader keeps one iterator for all epochs, as
        timm's ``MultiEpochsDataLoader`` does. With ``id_key``, if several ranks share the samples in another way than
        ``uneven="drop"``; and at a batch that has not the ids of its samples.
    """
    if not isinstance(loader, DataLoader):
        raise PrunedataError(_no_loader(loader))
    if isinstance(loader, PrunedLoader):
        raise PrunedataError("Expected a DataLoader that is not yet pruned. Got the result of wrap().")
    _refuse_kept_iterator(loader)
    _check_batch_size(loader, pruner)
    if isinstance(loader.dataset, IterableDataset):
        order, replaced = _stream(loader, pruner, uneven)
    else:
        order, replaced = _map_style(loader, pruner, uneven)
    if id_key is not None:
        _carry(loader, order, replaced, id_key, pruner)
    pruned = clone(loader, replaced | order.samplers(loader))
    pruned._start(pruner, order, with_ids=with_ids, reseeded=loader.generator is None, ahead=integer("ahead", ahead, 0))
    if not isinstance(loader.dataset, IterableDataset):
        pruner.trains_on(prints_in(loader.dataset, loader.num_workers, loader), lambda: names_in(loader.dataset))
    order.run.join()
    pruner.observers.add(pruned)
    return pruned


def _no_loader(given: object) -> str:
    """What to say of something that isn't PyTorch's DataLoader."""
    kind = type(given)
    got = f"Expected a torch.utils.data.DataLoader. Got a {kind.__module__}.{kind.__qualname__}"
    if kind.__name__ == "WebLoader":
        return (
            f"{got}, which has a DataLoader inside: make the DataLoader yourself, over the stream that "
            "prunedata.adapters.webdataset.wrap returned, and wrap that."
        )
    if isinstance(getattr(given, "loader", None), DataLoader):
        return (
            f"{got}, which has a DataLoader inside: put wrap(it.loader, pruner, ahead=n) in the place of it.loader, "
            "with n=1 if it fetches a batch ahead, and call observe() of that one."
        )
    if kind.__name__.endswith("Loader"):
        return (
            f"{got}, of another library: wrap a DataLoader of PyTorch's, or leave out by weight through watch(), if "
            "its batches have ids in them."
        )
    return f"{got}: wrap the loader, not its dataset or its iterator."


def _refuse_kept_iterator(loader: DataLoader[Any]) -> None:
    """Raise for a loader that has an iterator of its own, as those of libraries that keep their workers."""
    kind = type(loader)
    kept = [
        f", in its attribute {name!r},"
        for name, value in vars(loader).items()
        if name != "_iterator" and any(each.__name__ == "_BaseDataLoaderIter" for each in type(value).__mro__)
    ]
    # Or it will have one: its batches never end, and it is iterated in a way of its own.
    library = kind.__iter__.__module__.partition(".")[0]
    if not kept and library not in ("torch", "torchdata") and not hasattr(loader.batch_sampler or (), "__len__"):
        kept = [""]
    if kept:
        raise PrunedataError(
            f"Expected a DataLoader that makes its iterator when an epoch begins. Got a {kind.__module__}."
            f"{kind.__qualname__}, which has one{kept[0]} for all epochs: the samples that these keep are not known "
            "yet. Wrap a DataLoader(..., num_workers=n, persistent_workers=True), whose workers stay as well, or leave "
            "out by weight through watch()."
        )


def _check_batch_size(loader: DataLoader[Any], pruner: Pruner) -> None:
    """Raise if pruned epochs would have whole batches of another size than the loader has, alone or on all ranks."""
    own, given = loader.batch_size, pruner.batch_size
    if own is None or given is None:  # a batch sampler cuts as it likes
        return
    dealt = getattr(loader.sampler, "num_replicas", 1)
    ranks = {1, dealt, TorchRun.group_size(), int(os.environ.get("WORLD_SIZE", "1"))}  # as torchrun will have it
    if given not in {own * each for each in ranks}:
        raise PrunedataError(
            f"Expected a Pruner with the loader's batch_size={own}, or that of all ranks together. Got "
            f"batch_size={given}, of which pruned epochs would have whole batches: give both the same, or leave it out "
            "of the Pruner."
        )


def _map_style(loader: DataLoader[Any], pruner: Pruner, uneven: Uneven | None) -> tuple[Order, dict[str, Any]]:
    """The order of a loader over a map-style dataset, and its dataset and collate function with ids."""
    samples = len(loader.dataset) if hasattr(loader.dataset, "__len__") else None
    if samples != pruner.samples:
        raise PrunedataError(
            f"Expected a dataset of {pruner.samples} samples, as the Pruner. Got one of {samples}: "
            "build the Pruner with len(loader.dataset)."
        )
    if uneven not in (None, "weights", "drop", "pad"):
        raise PrunedataError(f'Expected uneven="weights", "drop" or "pad". Got {uneven!r}.')
    return order_for(loader, pruner, uneven), {
        "dataset": Indexed(loader.dataset),
        "collate_fn": Collate(loader.collate_fn),
    }


def _carry(loader: DataLoader[Any], order: Order, replaced: dict[str, Any], key: str, pruner: Pruner) -> None:
    """Let the ids travel within the samples."""
    if loader.batch_sampler is None:
        raise PrunedataError(
            "Expected a loader that makes batches, with id_key. Got one with batch_size=None: leave id_key out."
        )
    stream = isinstance(loader.dataset, IterableDataset)
    ranks = max(order.world, order.run.group_size())
    if ranks > 1 and not stream and getattr(order, "uneven", "drop") != "drop":
        raise PrunedataError(
            f'Expected uneven="drop" with id_key, of {ranks} ranks. Got another way to share the samples, which has to '
            "know their order in a rank's last batch: choose that one."
        )
    order.carries = True
    collate = CarryingCollate(loader.collate_fn, key, pruner.samples)
    replaced["collate_fn"] = CollatePairs(collate, batched=True, carries=True) if stream else collate


def _stream(loader: DataLoader[Any], pruner: Pruner, uneven: Uneven | None) -> tuple[Order, dict[str, Any]]:
    """The order of a loader over a pruned stream, and its collate function with ids."""
    if not getattr(loader.dataset, "delivers_ids", False):
        raise PrunedataError(
            f"Expected a map-style dataset, or a stream that was pruned by its own adapter. Got the IterableDataset "
            f"{type(loader.dataset).__name__}: wrap it by prunedata.adapters.iterable.wrap or "
            "prunedata.adapters.webdataset.wrap first."
        )
    if uneven not in (None, "weights", "drop"):
        raise PrunedataError(f'Expected uneven="weights" or "drop" for a stream. Got {uneven!r}.')
    collate = CollatePairs(loader.collate_fn, loader.batch_size is not None)
    return StreamOrder(loader, pruner, uneven or "weights"), {"collate_fn": collate}


def clone(loader: DataLoader[Any], replaced: dict[str, Any]) -> Any:
    """Return a loader like the user's, of a class that prunes, with the attributes in ``replaced`` replaced.

    All other attributes are the user's own objects. ``__init__`` is not called: a loader can't be made anew from its
    arguments, because nobody knows what a subclass of the user's was built from.
    """
    attributes = vars(loader) | replaced
    if loader.generator is None:  # WorkerSeeds seeds it in each epoch
        attributes["generator"] = torch.Generator()
    # The user's loader may stand within an epoch; the new one stands at the beginning. The last two attributes are
    # StatefulDataLoader's, which reads them when it is iterated.
    attributes |= {"_iterator": None, "_initial_iter_for_state_dict": False, "next_iter_state": None}
    kind: Any = type(loader)
    pruned: Any = object.__new__(subclass_of(kind))
    vars(pruned).update(attributes)  # DataLoader refuses to set some of them one by one
    return pruned


@cache
def subclass_of(kind: type) -> type:
    """Return a subclass of a loader's class that prunes.

    Of PyTorch's own class it is ``(PrunedLoader, DataLoader)``. Of a user's subclass it is the user's class before
    that: so its ``__iter__`` gets batches from ours, which has taken the ids off.
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
