"""Ids that travel with their samples: through the dataset, the worker and the collate function."""

from collections.abc import Callable
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from prunedata.types import SomeIds

__all__ = ["Collate", "CollatePairs", "Indexed"]


class Indexed(Dataset[Any]):
    """A dataset whose items come with their ids."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: Any) -> tuple[SomeIds, Any]:
        return np.atleast_1d(np.asarray(index, dtype=np.int64)), self.dataset[index]

    def __getitems__(self, indices: list[int]) -> tuple[SomeIds, Any]:
        many = getattr(self.dataset, "__getitems__", None)
        samples = many(indices) if many else [self.dataset[index] for index in indices]
        return np.array(indices, dtype=np.int64), samples

    def __setattr__(self, name: str, value: Any) -> None:
        """Set the user's attributes where the user's code reads them."""
        if name == "dataset":
            super().__setattr__(name, value)
        else:
            setattr(self.dataset, name, value)

    def __getattr__(self, name: str) -> Any:
        if name == "dataset" or name.startswith("__"):  # not there yet while it is unpickled
            raise AttributeError(name)
        return getattr(self.dataset, name)


class Collate:
    """The user's collate function, around which the ids pass."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, fetched: tuple[SomeIds, Any]) -> tuple[SomeIds, Any]:
        """Collate the samples."""
        ids, samples = fetched
        return ids, self.collate(samples)


class CollatePairs:
    """The user's collate function for a pruned stream, whose items are pairs of an id, or of ids, and a sample.

    With ``carries`` it is one that takes the ids with the samples.
    """

    def __init__(self, collate: Callable[[Any], Any], batched: bool, *, carries: bool = False) -> None:
        self.collate, self.batched, self.carries = collate, batched, carries

    def __call__(self, fetched: Any) -> tuple[SomeIds, Any]:
        """Collate the samples, and their ids into an array of shape (n,)."""
        if self.batched:
            ids, samples = [number for number, _ in fetched], [sample for _, sample in fetched]
        else:
            ids, samples = fetched
        numbers = np.atleast_1d(np.asarray(ids, dtype=np.int64))
        if self.carries:
            return self.collate((numbers, samples))  # type: ignore[no-any-return]
        return numbers, self.collate(samples)
