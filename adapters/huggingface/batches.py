"""The ids of a batch travel in it, until the trainer takes them off before the model sees it."""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from prunedata.errors import PrunedataError

__all__ = ["IDS", "BatchesWithIds"]

IDS = "prunedata_ids"
"""The key under which a batch has the ids of its samples, as an ndarray of int64, shape (n,)."""


class BatchesWithIds:
    """A pruned loader whose batches are dicts with the ids among them.

    Parameters
    ----------
    loader : DataLoader
        As ``prunedata.adapters.torch.wrap(loader, pruner, with_ids=True)`` returned it. Its attributes are to be
        found here, too.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        for ids, batch in self.loader:
            if not hasattr(batch, "keys"):
                raise PrunedataError(
                    f"Expected batches that are dicts, as the Trainer passes them to the model by name. Got "
                    f"{type(batch).__name__}: let data_collator return a dict."
                )
            batch[IDS] = ids
            yield batch

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # not there yet while it is unpickled
            raise AttributeError(name)
        return getattr(self.loader, name)
