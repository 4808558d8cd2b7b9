"""Ids that travel with their samples: through the dataset, the worker and the collate function."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import Dataset, default_collate

from prunedata.adapters.torch.trainers import refuse_sharing
from prunedata.errors import PrunedataError
from prunedata.types import SomeIds


def as_ids(value: Any, samples: int) -> SomeIds | None:
    """Return a copy of a batch's ids, int64 of shape (n,), n > 0; None if they are no ids of so many samples."""
    try:
        ids = np.asarray(value.cpu() if isinstance(value, torch.Tensor) else value)
    except ValueError:  # of several lengths
        return None
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or not ids.size or ids.min() < 0 or ids.max() >= samples:
        return None
    return ids.astype(np.int64)


def labels_of(batch: Any, samples: int) -> Any:
    """Return what should be the classes of a batch's samples, an array of int of shape (n,); None if nothing should.

    That is the second part of a pair, or the entry ``label`` or ``labels``, if it is one whole number for each sample.
    """
    found: Any = None
    if isinstance(batch, Mapping):
        found = batch.get("labels", batch.get("label"))
    elif isinstance(batch, list | tuple) and len(batch) == 2:
        found = batch[1]
    if isinstance(found, torch.Tensor):
        is_whole = found.is_cpu and not (found.is_floating_point() or found.is_complex() or found.is_sparse)
        found = found.numpy() if is_whole else None
    is_one_each = isinstance(found, np.ndarray) and found.shape == (samples,)
    return found if is_one_each and found.dtype.kind in "iub" else None


def tensors_in(batch: Any) -> list[torch.Tensor]:
    """Return the tensors of a batch, in lists and dicts of any depth, or in the attributes of an object."""
    parts = list(batch.values()) if isinstance(batch, Mapping) else batch
    if isinstance(parts, (list, tuple)) and all(isinstance(each, torch.Tensor) for each in parts):
        return list(parts)  # soon, as most batches are so
    leaves = tree_leaves(parts)
    if len(leaves) == 1 and leaves[0] is batch and not isinstance(batch, torch.Tensor):
        leaves = tree_leaves(batch.to_dict() if hasattr(batch, "to_dict") else dict(getattr(batch, "__dict__", {})))
    return [each for each in leaves if isinstance(each, torch.Tensor)]


def has_own_iterator(loader: Any) -> bool:
    """Whether a loader's iterator passes what PyTorch's yields to another function, which would get the ids, too.

    Those of PyTorch Geometric that sample neighbors do, unless they have ``filter_per_worker``.
    """
    own = getattr(type(loader), "_get_iterator", None)  # accelerate's only looks like a DataLoader, and has none
    if own is None or own.__module__.partition(".")[0] in ("torch", "torchdata"):
        return False
    return not getattr(loader, "filter_per_worker", False)


def _places(index: Any) -> SomeIds:
    """Return a copy of the places that a sampler asks for, one or several; [-1] if it asks by a key, a slice or a mask.

    An error would end the user's training.
    """
    try:
        ids = np.array(index, ndmin=1)
    except Exception:  # a sampler may ask for anything
        return np.array([-1])
    is_plain = ids.ndim == 1 and (ids.dtype.kind in "iu" or not ids.size) and not isinstance(index, tuple)
    return ids.astype(np.int64, copy=False) if is_plain else np.array([-1])


class Indexed(Dataset[Any]):
    """A dataset whose items come with their ids. In all else it is the user's, as a ``worker_init_fn`` may look at it.

    So its class and all attributes are those of the user's dataset, also one with the name ``dataset``, as of a Subset.
    """

    def __init__(self, dataset: Dataset[Any]) -> None:
        object.__setattr__(self, "_indexed", dataset)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._indexed)

    def __reduce__(self) -> Any:  # pickle would take the class of the user's
        return type(self), (self._indexed,)

    def __len__(self) -> int:
        return len(self._indexed)

    def __getitem__(self, index: Any) -> tuple[SomeIds, Any]:
        return _places(index), self._indexed[index]

    def __getitems__(self, indices: list[int]) -> tuple[SomeIds, Any]:
        get_all = getattr(self._indexed, "__getitems__", None)
        samples = get_all(indices) if get_all else [self._indexed[index] for index in indices]
        return _places(indices), samples

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._indexed, name, value)

    def __getattr__(self, name: str) -> Any:
        if name == "_indexed" or name.startswith("__"):  # not set yet while it is copied
            raise AttributeError(name)
        return getattr(self._indexed, name)


LONGEST = 1 << 14  # numbers of a sample: images have more, whose sums take long, and are not sorted by length
SORTS = (
    "its collate function changes the order of the samples, so that losses would be recorded for others: keep the "
    "order, as pack_padded_sequence(enforce_sorted=False) allows"
)


class Collate:
    """Collates samples by the user's function, and passes their ids on.

    If the first batches of a process show that the function changes the order of the samples, or any that it puts
    others in the place of None, it raises :class:`PrunedataError`. With ``tells`` it returns no ids from then on, and
    the batches as they are; samples that are None and dropped then have no ids. The function is called once for each
    batch, as it may draw random numbers.
    """

    batches, enough = 6, 4

    def __init__(self, collate: Callable[[Any], Any], *, tells: bool = False) -> None:
        self.collate, self.tells = collate, tells
        self._is_own = collate is not default_collate
        self._left = self.batches if self._is_own else 0
        """How many more batches are looked at."""
        self._moved = 0

    def __call__(self, fetched: tuple[SomeIds, Any]) -> tuple[SomeIds, Any]:
        """Return the ids, and the collated samples."""
        ids, samples = fetched
        is_listed = self._is_own and isinstance(samples, list) and len(samples) == len(ids)
        before = list(samples) if self._left and isinstance(samples, list) else []
        are_there = [sample is not None for sample in samples] if is_listed else []
        batch = self.collate(samples)  # it may sort the list itself
        if not all(are_there):
            with suppress(Exception):  # a batch may be anything
                rows = {len(each) for each in tensors_in(batch) if each.ndim}
                if len(ids) in rows:  # filled with others, and which rows these are is unknown
                    self._moved = self.enough
                elif self.tells and sum(are_there) in rows:  # ranks that share batches must know them beforehand
                    ids = ids[are_there]
        if before:
            self._left -= 1
            with suppress(Exception):  # samples and batches may be anything
                self._moved += _moved(before, batch)
        if self._moved < self.enough:
            return ids, batch
        if self.tells:
            return ids[:0], batch
        raise PrunedataError(
            f"Expected a collate function that keeps the order of its samples. Got another: {SORTS}; or, for a "
            'DataLoader, let their ids travel with them: pruner.wrap(loader, id_key="id").'
        )


def _moved(samples: list[Any], batch: Any) -> int:
    """Return how surely the numbers of samples that are in a batch show another order there; 0 if they do not.

    Of two classes another number of the batch may have as many of each by chance: that has to come again.
    """
    tables = [each.cpu() for each in tensors_in(batch) if each.shape[:1] == (len(samples),)]
    columns = [np.asarray(each).ravel() for each in tables if each.numel() == len(samples)]
    sums = [np.asarray(of_rows) for each in tables if each.numel() > len(samples) and (of_rows := _sums(each))]
    one_hot = [np.asarray(each.argmax(1)) for each in tables if each.ndim == 2 and each.shape[1] > 1]
    surely, fields = 0, list(zip(*map(_fields, samples), strict=False))
    for numbers_in, among, enough in ((_numbers, columns, Collate.enough), (_sums, sums, 1)):
        for numbers in filter(None, map(numbers_in, fields)):
            different = len(set(numbers))
            if different > 1 and any(np.array_equal(numbers, column) for column in one_hot):
                return 0
            for column in among:
                own = np.asarray(numbers).astype(column.dtype)
                if np.array_equal(own, column):
                    if different > 1:
                        return 0
                elif np.array_equal(np.sort(own), np.sort(column)):
                    surely = max(surely, enough if different > 2 else 1)
    return surely


def _fields(sample: Any) -> list[Any]:
    if isinstance(sample, Mapping):
        return list(sample.values())
    return list(sample) if isinstance(sample, (tuple, list)) else [sample]


def _numbers(field: tuple[Any, ...]) -> list[Any] | None:
    """Return what samples have in a field, if each has one number there."""
    found = [each.item() if prod(getattr(each, "shape", (0,))) == 1 else each for each in field]
    return found if all(isinstance(each, (int, float)) for each in found) else None


def _sums(field: Iterable[Any]) -> list[float] | None:
    """Return the sums of what samples have in a field, if each has several numbers there; padding adds nothing."""
    if any(prod(getattr(each, "shape", ())) > LONGEST for each in field):
        return None
    try:
        arrays = [np.asarray(each.detach().cpu().double() if hasattr(each, "detach") else each) for each in field]
    except Exception:  # whatever is in the user's data
        return None
    several = all(array.ndim and array.dtype.kind in "biuf" for array in arrays)
    return [float(array.astype(np.float64).sum()) for array in arrays] if several else None


class CollatePairs:
    """Collates the items of a pruned stream, pairs of an id, or of ids, and a sample, by one of the other two.

    A stream has no sampler, so the first batch of a process is where accelerate is refused that would lose the ids.
    """

    def __init__(self, collate: "Collate | CarryingCollate", *, batched: bool, with_ids: bool) -> None:
        self.collate, self.batched, self.with_ids = collate, batched, with_ids
        self._looked = False

    def __call__(self, fetched: Any) -> tuple[SomeIds, Any]:
        """Return the ids as an array of shape (n,), and the collated samples."""
        if not self._looked:
            refuse_sharing(1, with_ids=self.with_ids, zero_weights=False)
            self._looked = True
        if self.batched:
            numbers, samples = [number for number, _ in fetched], [sample for _, sample in fetched]
        else:
            numbers, samples = fetched
        return self.collate((np.atleast_1d(np.asarray(numbers, dtype=np.int64)), samples))


class CarryingCollate:
    """Put ids into samples, collate them by the user's function, and take the ids out of the batch again.

    A mapping gets its id at ``key``, unless the dataset has put one there; a tuple or list as its last field. Any other
    sample becomes a pair.
    """

    def __init__(self, collate: Callable[[Any], Any], key: str, samples: int) -> None:
        self.collate, self.key, self.samples = collate, key, samples

    def __call__(self, fetched: tuple[SomeIds, Any]) -> tuple[SomeIds, Any]:
        """Return the ids that came with the batch, and the batch without them."""
        requested, samples = fetched
        if not isinstance(samples, (list, tuple)) or len(samples) != len(requested):
            raise PrunedataError(
                f"Expected a list of {len(requested)} samples from the dataset, for id_key={self.key!r}. Got "
                f"{type(samples).__name__}: let __getitems__ return a sample for each index."
            )
        carrying = [self._with_id(sample, number) for sample, number in zip(samples, requested.tolist(), strict=True)]
        first = next((sample for sample in samples if sample is not None), None)
        ids, batch = self._split(self.collate(carrying), first)
        return self._checked(ids, requested), batch

    def _with_id(self, sample: Any, number: int) -> Any:
        if sample is None:
            return None  # the collate function drops it
        if isinstance(sample, Mapping):
            return sample if self.key in sample else {**sample, self.key: number}
        if isinstance(sample, list):
            return [*sample, number]
        return (*sample, number) if isinstance(sample, tuple) else (sample, number)

    def _split(self, batch: Any, sample: Any) -> tuple[Any, Any]:
        """Return the ids of a batch, and the batch without them. ``sample`` is one of the batch's, without its id."""
        if isinstance(batch, Mapping) and self.key in batch:
            ids = batch[self.key]
            if type(batch) is dict:
                return ids, {name: value for name, value in batch.items() if name != self.key}
            del batch[self.key]  # type: ignore[attr-defined]  # of another class, which it keeps
            return ids, batch
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

    def _checked(self, value: Any, requested: SomeIds) -> SomeIds:
        """Return the ids of a batch as an array, if they can be those of some requested samples."""
        ids = as_ids(value, self.samples)
        if ids is None or ids.size > requested.size or not np.isin(ids, requested).any():
            raise PrunedataError(
                f"Expected the ids of the batch, at most {requested.size} of 0 to {self.samples - 1}, from the collate "
                f"function. Got {value!r}: let it pass on what each sample has as {self.key!r} or as its last field; "
                "or choose another id_key, if the dataset has a field of this name."
            )
        return ids
