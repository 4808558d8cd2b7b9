"""Ids that travel within the samples, through collate functions that sort, drop or replace samples."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from prunedata.errors import PrunedataError
from prunedata.types import SomeIds

__all__ = ["CarryingCollate"]


class CarryingCollate:
    """The user's collate function, of samples that have their ids, and whose batch has them still.

    A mapping has its id at ``key``, or else as the dataset gave it there; a tuple or list as its last field. Any other
    sample becomes a pair. From the batch the ids are taken out again, so that it has the structure that it has else.
    """

    def __init__(self, collate: Callable[[Any], Any], key: str, samples: int) -> None:
        self.collate, self.key, self.samples = collate, key, samples

    def __call__(self, fetched: tuple[SomeIds, Any]) -> tuple[SomeIds, Any]:
        """Collate the samples; return the ids that came with the batch."""
        asked, samples = fetched
        if not isinstance(samples, (list, tuple)) or len(samples) != len(asked):
            raise PrunedataError(
                f"Expected a list of {len(asked)} samples from the dataset, for id_key={self.key!r}. Got "
                f"{type(samples).__name__}: let __getitems__ return a sample for each index."
            )
        carrying = [self._with_id(sample, number) for sample, number in zip(samples, asked.tolist(), strict=True)]
        ids, batch = self._taken(self.collate(carrying), next((one for one in samples if one is not None), None))
        return self._checked(ids, asked), batch

    def _with_id(self, sample: Any, number: int) -> Any:
        if sample is None:
            return None  # to be dropped
        if isinstance(sample, Mapping):
            return sample if self.key in sample else {**sample, self.key: number}
        return [*sample, number] if isinstance(sample, list) else (*_fields(sample), number)

    def _taken(self, batch: Any, sample: Any) -> tuple[Any, Any]:
        """The ids of a batch, and the batch without them; it is like the sample."""
        if isinstance(batch, Mapping) and self.key in batch:
            ids = batch[self.key]
            rest = {name: value for name, value in batch.items() if name != self.key}
            return ids, rest if type(batch) is dict else _without(batch, self.key)
        if isinstance(batch, (list, tuple)) and len(batch) > 1 and not isinstance(sample, Mapping):
            fields, ids = batch[:-1], batch[-1]
            if not isinstance(sample, (list, tuple)):
                return ids, fields[0] if len(fields) == 1 else fields
            kind: Any = type(sample)
            return ids, kind(*fields) if len(fields) == len(getattr(kind, "_fields", ())) else fields
        raise PrunedataError(
            f"Expected the collate function to pass the ids on: as {self.key!r} of a batch that is a mapping, as the "
            f"last field of any other. Got a {type(batch).__name__} without them."
        )

    def _checked(self, given: Any, asked: SomeIds) -> SomeIds:
        """The ids of a batch as an array, if they can be some of those that were asked for."""
        try:
            ids = np.asarray(given.cpu() if isinstance(given, torch.Tensor) else given)
        except ValueError:  # of several lengths
            ids = np.zeros(0)
        right = ids.ndim == 1 and ids.dtype.kind in "iu" and 0 < ids.size <= asked.size
        if not (right and ids.min() >= 0 and ids.max() < self.samples and np.isin(ids, asked).any()):
            raise PrunedataError(
                f"Expected the ids of the batch, at most {asked.size} of 0 to {self.samples - 1}, from the collate "
                f"function. Got {given!r}: let it pass on what each sample has as {self.key!r} or as its last field; "
                "or give id_key another name, if the dataset has a field of this one."
            )
        return ids.astype(np.int64)


def _fields(sample: Any) -> tuple[Any, ...]:
    return tuple(sample) if isinstance(sample, tuple) else (sample,)


def _without(batch: Any, key: str) -> Any:
    del batch[key]
    return batch
