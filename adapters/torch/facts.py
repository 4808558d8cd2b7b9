"""What a DataLoader is made of, as far as pruning it is concerned: for ``prunedata doctor``."""

from collections.abc import Mapping
from typing import Any

from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from prunedata.adapters.torch.orders import order_for
from prunedata.adapters.torch.probe import collating
from prunedata.errors import PrunedataError
from prunedata.plan.schedule import Schedule
from prunedata.run.pruner import Pruner

__all__ = ["facts", "samples_in"]


def samples_in(given: Any, *_: Any, **__: Any) -> int | None:
    """Return how many samples a DataLoader's dataset has; None for a stream, and for anything but a DataLoader."""
    if not isinstance(given, DataLoader) or isinstance(given.dataset, IterableDataset):
        return None
    return len(given.dataset) if hasattr(given.dataset, "__len__") else None


def facts(loader: Any) -> Mapping[str, Any]:
    """Tell by names what decides how a loader is pruned. Empty of anything else.

    They are sentences, numbers, or pairs of a state and a sentence.

    Parameters
    ----------
    loader : DataLoader
        As it would be given to ``wrap``.
    """
    if not isinstance(loader, DataLoader):
        return {}
    stream = isinstance(loader.dataset, IterableDataset)
    found: dict[str, Any] = {}
    samples = samples_in(loader)
    workers = loader.num_workers
    again = workers and not loader.persistent_workers
    found["workers"] = f"{workers}, started anew in each epoch unless persistent_workers=True" if again else workers
    found["ids"] = "those that the stream's adapter gives" if stream else "the places of the samples in the dataset"
    if samples is not None:
        found["order"] = _order(loader, samples)
        collate = collating(loader)
        if collate is not None:
            found["collate function"] = collate
    dropped = ", the last left out if it isn't full" if loader.drop_last else ""
    found["batches"] = f"{'made by a batch sampler' if loader.batch_size is None else loader.batch_size}{dropped}"
    sampler: Any = getattr(loader.batch_sampler, "sampler", loader.sampler)
    found["ranks"] = sampler.num_replicas if isinstance(sampler, DistributedSampler) else 1
    exact = hasattr(loader, "state_dict")
    found["going on in an epoch"] = "at its batch, by state_dict()" if exact else "with the samples not yet observed"
    return found


def _order(loader: DataLoader[Any], samples: int) -> str:
    """What the order that the loader gets says of itself."""
    try:
        order = order_for(loader, Pruner(samples, Schedule.steady(12), prune=0.25))
    except PrunedataError:
        return "none: see below"
    told = (type(order).__doc__ or "").partition("\n")[0].replace("`", "").rstrip(".")
    return f"{told[:1].lower()}{told[1:]}" if getattr(order, "shuffle", True) else "ascending ids, as nothing shuffles"
