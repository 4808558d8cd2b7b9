"""What decides how a DataLoader is pruned: for ``prunedata doctor``."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, default_collate

from prunedata.adapters.torch.orders import order_for
from prunedata.errors import PrunedataError
from prunedata.plan.schedule import Schedule
from prunedata.run.frameworks import names_in
from prunedata.run.pruner import Pruner

TRIED = 7  # samples that are collated, to see whether a collate function keeps their order


def not_a_loader(value: object) -> PrunedataError:
    """Return the error for something that isn't PyTorch's DataLoader."""
    kind = type(value)
    if kind.__name__ == "WebLoader":
        remedy = (
            ", which has a DataLoader inside: make the DataLoader yourself, over the stream that pruner.wrap(dataset, "
            "index) returned, and wrap that."
        )
    elif isinstance(getattr(value, "loader", None), DataLoader):
        remedy = (
            ", which has a DataLoader inside: put pruner.wrap(it.loader, ahead=n) in the place of it.loader, with n=1 "
            "if it fetches a batch ahead, and call observe() of that one."
        )
    elif isinstance(getattr(value, "_dataloader", None), DataLoader):
        remedy = (
            ", which has a DataLoader inside: wrap the loader first, and let Fabric set up the result, by "
            "fabric.setup_dataloaders(pruner.wrap(loader))."
        )
    elif kind.__name__.endswith("Loader"):
        remedy = (
            ", of another library: wrap a DataLoader of PyTorch's; or, if its batches have ids in them, leave samples "
            "out by weight through watch()."
        )
    else:
        remedy = ": wrap the loader, not its dataset or its iterator."
    return PrunedataError(
        f"Expected a torch.utils.data.DataLoader. Got a {kind.__module__}.{kind.__qualname__}{remedy}"
    )


def samples_in(loader: Any, *_: Any, **__: Any) -> int | None:
    """Return how many samples a DataLoader's dataset has; None for a stream. Raise for anything but a DataLoader."""
    if not isinstance(loader, DataLoader):
        raise not_a_loader(loader)
    if isinstance(loader.dataset, IterableDataset):
        return None
    return len(loader.dataset) if hasattr(loader.dataset, "__len__") else None


def keys_in(loader: Any, *_: Any, **__: Any) -> list[str] | None:
    """Return the names that a DataLoader's dataset has for its samples; None if it has none."""
    return names_in(loader.dataset) if isinstance(loader, DataLoader) else None


def facts(loader: Any) -> Mapping[str, Any]:
    """Return what decides how a DataLoader, as you would give it to ``wrap``, is pruned, by names; else nothing.

    The values are sentences, numbers, or pairs of a state and a sentence.
    """
    if not isinstance(loader, DataLoader):
        return {}
    stream = isinstance(loader.dataset, IterableDataset)
    found: dict[str, Any] = {}
    samples = samples_in(loader)
    workers = loader.num_workers
    again = workers and not loader.persistent_workers
    found["workers"] = f"{workers}, started anew in each epoch unless persistent_workers=True" if again else workers
    found["ids"] = "those of the stream's adapter" if stream else "the positions of the samples in the dataset"
    if samples is not None:
        found["order"] = _order(loader, samples)
        collate = _collating(loader)
        if collate is not None:
            found["collate function"] = collate
    dropped = ", the last left out if it isn't full" if loader.drop_last else ""
    found["batches"] = f"{'made by a batch sampler' if loader.batch_size is None else loader.batch_size}{dropped}"
    sampler: Any = getattr(loader.batch_sampler, "sampler", loader.sampler)
    found["ranks"] = sampler.num_replicas if isinstance(sampler, DistributedSampler) else 1
    exact = hasattr(loader, "state_dict")
    found["resuming in an epoch"] = "at its batch, by state_dict()" if exact else "with the samples not yet observed"
    return found


def _order(loader: DataLoader[Any], samples: int) -> str:
    """Describe the order that the loader gets."""
    try:
        order = order_for(loader, Pruner(samples, Schedule.steady(12), prune=0.25))
    except PrunedataError:
        return "none: see below"
    line = (type(order).__doc__ or "").partition("\n")[0].replace("`", "").rstrip(".")
    return f"{line[:1].lower()}{line[1:]}" if getattr(order, "shuffle", True) else "ascending ids, as nothing shuffles"


def _collating(loader: DataLoader[Any]) -> tuple[str, str] | None:
    """Return whether samples keep their ids: a state of ``doctor`` and a sentence; None for a loader without batches.

    The same samples are collated forwards and backwards. If the collate function keeps their order, the second batch is
    the first one reversed.
    """
    if loader.batch_sampler is None:
        return None
    try:
        samples = [loader.dataset[place] for place in range(min(TRIED, len(loader.dataset)))]  # type: ignore[arg-type]
        kept, moved = _tried(loader.collate_fn, samples)
    except Exception:
        return "note", "could not be tried"
    if loader.collate_fn is default_collate:  # a trial with samples that are all alike would show nothing
        return "ok", "keeps the order of its samples: it is PyTorch's own"
    way_on = 'give wrap() an id_key="id" and pass the ids on'
    if moved and not kept:
        return "note", f"sorts or chooses samples, so that losses would be recorded for other samples: {way_on}"
    if kept and not moved:
        return "ok", "keeps the order of its samples, as far as a few of them can show"
    return (
        "note",
        f"unknown whether it keeps the order of its samples; if it sorts, drops or replaces samples, {way_on}",
    )


def _tried(collate: Any, samples: list[Any]) -> tuple[int, int]:
    """Return in how many columns of a batch samples keep their order, and in how many they change it."""
    batches = [collate(deepcopy(each)) for each in (samples, samples, samples[::-1])]
    return _compared(*([*_columns(batch, len(samples))] for batch in batches))


def _compared(batch: list[Any], again: list[Any], backwards: list[Any]) -> tuple[int, int]:
    """Compare the columns of three batches: two of the same samples, and one of the same samples backwards.

    If samples change their order, equal ones, as of a length that is sorted by, may change it in another way backwards.
    """
    kept = moved = 0
    if len(batch) == len(again) == len(backwards):
        for column, same, reverse in zip(batch, again, backwards, strict=True):
            if not _alike(column, same) or _alike(column, column[::-1]):
                continue  # it has random numbers, or is the same in both directions
            in_order = _alike(column, reverse[::-1])
            kept += in_order
            moved += not in_order and _rows(column) == _rows(reverse)
    return kept, moved


def _rows(column: Any) -> list[Any]:
    return sorted(row.tobytes() if isinstance(row, np.ndarray) else str(row) for row in column)


def _columns(batch: Any, size: int) -> Iterator[Any]:
    """Yield everything in a batch that has one entry for each sample, as arrays or lists."""
    if isinstance(batch, torch.Tensor):
        batch = batch.detach().float().cpu().numpy()
    if isinstance(batch, np.ndarray):
        if batch.ndim and len(batch) == size:
            yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from _columns(value, size)
    elif isinstance(batch, (list, tuple)):
        if len(batch) == size and all(isinstance(each, (str, bytes, int, float)) for each in batch):
            yield list(batch)
        else:
            for value in batch:
                yield from _columns(value, size)


def _alike(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first.dtype != object and np.array_equal(first, second)
    return bool(first == second)
