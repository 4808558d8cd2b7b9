"""The loaders that a watched loop iterates: their batches carry ids, and two of them may have the same data."""

from collections.abc import Callable
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from prunedata.adapters.torch.items import Collate, Indexed, has_own_iterator
from prunedata.adapters.torch.loader import PrunedLoader
from prunedata.adapters.torch.prints import prints_in, some_in
from prunedata.run.frameworks import labels_in
from prunedata.run.rows import original_rows

__all__ = ["are_alike", "has_ids", "with_ids"]


class _Placed(Indexed):
    """The data set of a loop's loader. Those of pruned loaders, and of trainers, are other ones."""


def with_ids(loader: DataLoader[Any], own: Callable[[Any], Any]) -> Any:
    """Call a method of a loader. An iterator that it makes yields the batches with the ids of their samples.

    Those of a loader whose samples have no places stay as they are.
    """
    attributes = vars(loader)  # DataLoader's __setattr__ refuses them
    before: dict[str, Any] = {name: attributes[name] for name in ("dataset", "collate_fn") if name in attributes}
    if len(before) < 2 or not _has_places(loader):
        return own(loader)
    attributes["dataset"] = _Placed(loader.dataset)
    attributes["collate_fn"] = Collate(loader.collate_fn, tells=True)
    try:
        return own(loader)
    finally:
        attributes.update(before)


def has_ids(batches: Any) -> bool:
    """Whether the iterator of a loader yields ids with its batches."""
    return type(getattr(batches, "_dataset", None)) is _Placed


def _has_places(loader: Any) -> bool:
    """Whether a loader's samples have places in its data set, and no adapter made it: to prune, or to compare data."""
    if isinstance(loader, PrunedLoader) or isinstance(loader.dataset, IterableDataset | Indexed):
        return False
    if get_worker_info() is not None or has_own_iterator(loader):
        return False
    try:
        return len(loader.dataset) > 0
    except TypeError:
        return False


def are_alike(one: DataLoader[Any], other: DataLoader[Any]) -> bool:
    """Whether two loaders have the same data, which may have been made anew."""
    ours, theirs = one.dataset, other.dataset
    if ours is theirs:
        return True
    if type(ours) is not type(theirs) or len(ours) != len(theirs):  # type: ignore[arg-type]
        return False
    rows: Any = [original_rows(each) for each in (ours, theirs)]
    if not np.array_equal(*rows):
        return False
    labels: Any = labels_in(ours), labels_in(theirs)
    if labels[0] is not None and labels[1] is not None:
        return bool(np.array_equal(*labels))
    prints = [prints_in(each.dataset, each.num_workers, each)(some_in(ours)) for each in (one, other)]
    return prints[0] == prints[1] and None not in prints[0]
