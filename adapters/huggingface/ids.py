"""The ids of a batch travel in it, until the trainer takes them off before the model sees it.

So they do in the batches of a pruned loader, and in those of a Trainer's own, which keeps its sampler, its order and
its length.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, IterableDataset

from prunedata.adapters.torch.items import Indexed
from prunedata.checks import shown
from prunedata.errors import PrunedataError
from prunedata.keys import SampleIds
from prunedata.types import SomeIds

__all__ = ["IDS", "BatchesWithIds", "packed_starts", "row_of_packed", "with_ids"]

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
                    f"Expected batches that are dicts, which the Trainer passes to the model by name. Got "
                    f"{type(batch).__name__}: return a dict from data_collator."
                )
            batch[IDS] = ids
            yield batch

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # not there yet while it is unpickled
            raise AttributeError(name)
        return getattr(self.loader, name)


def packed_starts(dataset: Any) -> npt.NDArray[np.int64] | None:
    """Return where the samples of each row of a packed dataset begin, shape (rows + 1,); None if it is not packed."""
    if "seq_lengths" not in (getattr(dataset, "column_names", None) or ()):
        return None
    if not hasattr(dataset, "__len__"):
        raise PrunedataError(
            "Expected a packed dataset with a length. Got a stream that is packed, whose rows do not identify their "
            "samples: turn packing off, or pass a dataset with a length."
        )
    lengths = dataset.with_format(None)["seq_lengths"]
    return np.concatenate([[0], np.cumsum([len(row) for row in lengths])]).astype(np.int64)


def row_of_packed(starts: npt.NDArray[np.int64], ids: SomeIds) -> npt.NDArray[np.int64]:
    """Return in which row of a packed dataset each sample is; ``starts`` are those of :func:`packed_starts`."""
    return np.asarray(np.searchsorted(starts, ids, "right") - 1)


class _IdsInBatch:
    """The trainer's collate function, whose batches get the ids of their samples."""

    def __init__(
        self,
        collate: Callable[[Any], Any],
        starts: npt.NDArray[np.int64] | None,
        key: str | None,
        ids: SampleIds,
        *,
        dealt: bool,
    ) -> None:
        self.collate, self.starts, self.key, self.ids, self.dealt = collate, starts, key, ids, dealt

    def __call__(self, fetched: Any) -> Any:
        """Collate the samples."""
        if self.key is None:
            places, samples = fetched
        else:
            places = [self.ids.of(_id_in(sample, self.key)) for sample in fetched]
            samples = [{name: value for name, value in sample.items() if name != self.key} for sample in fetched]
        ids = np.asarray(places, dtype=np.int64)
        if self.starts is not None:
            ids = np.concatenate([np.arange(self.starts[row], self.starts[row + 1]) for row in ids])
        batch = self.collate(samples)
        if not hasattr(batch, "keys"):
            raise PrunedataError(
                f"Expected batches that are dicts, which the Trainer passes to the model by name. Got "
                f"{type(batch).__name__}: return a dict from data_collator."
            )
        # Only where one process deals out the parts of a batch they have to be a tensor: which would go to the device
        # with the batch, and its way back would make every step wait for all that the device has still to do.
        batch[IDS] = torch.from_numpy(ids) if self.dealt else ids
        return batch


def _id_in(sample: Any, key: str) -> Any:
    try:
        found = sample[key]
    except (KeyError, TypeError, IndexError):
        raise PrunedataError(
            f"Expected samples of the stream that are dicts with an id at {key!r}, as id= names. Got {shown(sample)}."
        ) from None
    return found


def with_ids(
    loader: DataLoader[Any], starts: npt.NDArray[np.int64] | None, key: str | None, ids: SampleIds, *, dealt: bool
) -> DataLoader[Any]:
    """Return a loader like a Trainer's own, whose batches have ids, as ``prunedata_ids``.

    Parameters
    ----------
    loader : DataLoader
        As it is before accelerate prepares it. Not changed.
    starts : ndarray of int64, shape (rows + 1,), or None
        Of a packed dataset: see :func:`packed_starts`.
    key : str or None
        Of a stream: where a sample has its id.
    ids : SampleIds
        Of a stream: the ids of what samples have there.
    dealt : bool
        Whether one process reads the batches and deals their parts to the others.
    """
    collate = _IdsInBatch(loader.collate_fn, starts, key, ids, dealt=dealt)
    replaced: dict[str, Any] = {"collate_fn": collate}
    if not isinstance(loader.dataset, IterableDataset):
        replaced["dataset"] = Indexed(loader.dataset)
    like: Any = object.__new__(type(loader))
    vars(like).update(vars(loader) | replaced | {"_iterator": None})
    return like  # type: ignore[no-any-return]
