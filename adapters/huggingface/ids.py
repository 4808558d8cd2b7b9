"""The ids of a batch travel in it, until the trainer takes them off before the model sees it.

So they do in the batches of a pruned loader, and in those of a Trainer's own, which keeps its sampler, its order and
its length.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, IterableDataset

from prunedata.adapters.torch.items import Collate, Indexed
from prunedata.checks import shown
from prunedata.errors import PrunedataError
from prunedata.keys import SampleIds
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

IDS = "prunedata_ids"  # the key under which a batch has the ids of its samples, as an ndarray of int64, shape (n,)


def take_ids(batch: Any) -> SomeIds | None:
    """Take the ids out of a batch, shape (n,); None if it has none."""
    ids = batch.pop(IDS, None) if hasattr(batch, "pop") else None
    return ids.cpu().numpy() if isinstance(ids, torch.Tensor) else ids


def _check_batch(batch: Any) -> None:
    """Raise :class:`PrunedataError` for a batch that cannot have ids in it."""
    if not hasattr(batch, "keys"):
        raise PrunedataError(
            f"Expected batches that are dicts, which the Trainer passes to the model by name. Got "
            f"{type(batch).__name__}: return a dict from data_collator."
        )


class BatchesWithIds:
    """A pruned loader whose batches are dicts with the ids among them. Its attributes are to be found here, too.

    It is wrapped ``with_ids=True``.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        for ids, batch in self.loader:
            _check_batch(batch)
            batch[IDS] = ids
            yield batch

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # not there yet while it is copied
            raise AttributeError(name)
        return getattr(self.loader, name)


def unprepared(accelerator: Any, get: Callable[[], Any]) -> tuple[Any, Callable[[Any], Any]]:
    """Return the loader that a function makes, before accelerate deals it to the processes, and a function that deals.

    That one returns its loader as it is if the user's own ``get_train_dataloader`` lets accelerate deal none.
    """
    asked: list[dict[str, Any]] = []

    def later(*given: Any, **options: Any) -> Any:
        asked.append(options)
        return given[0] if len(given) == 1 else given

    accelerator.prepare = later
    try:
        loader = get()
    finally:
        del accelerator.prepare
    return loader, lambda ready: accelerator.prepare(ready, **asked[-1]) if asked else ready


# -- samples of a Trainer's own data set


def data_of(trainer: Any) -> Any:
    """Return the data set that a trainer trains on; sentence-transformers joins those of a dict, in their order."""
    dataset = getattr(trainer, "train_dataset", None)
    return ConcatDataset(list(dataset.values())) if isinstance(dataset, dict) and dataset else dataset


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


def samples_in(given: Any, *_: Any, **__: Any) -> int | None:
    """Return how many samples a trainer trains on: of packed rows, the samples in them; None for a stream."""
    dataset = data_of(given)
    if not hasattr(dataset, "__len__"):
        return None
    starts = packed_starts(dataset)
    return len(dataset) if starts is None else int(starts[-1])


def _check_rows(dataset: Any, trainer: Any) -> None:
    """Raise :class:`PrunedataError` if a loader reads other rows than those of the trainer's data set."""
    own = data_of(trainer)
    selected, before = (getattr(each, "_indices", None) for each in (dataset, own))  # as Hugging Face's have them
    if len(dataset) == len(own) and (selected is None or (before is not None and selected.equals(before))):
        return
    raise PrunedataError(
        f"Expected get_train_dataloader to read the {len(own)} samples of train_dataset, whose places are the ids. Got "
        f"{len(dataset)}, selected within it: select or shuffle before, and pass the result as train_dataset."
    )


class OwnLoader:
    """A Trainer's own loader, whose batches have ids, as ``prunedata_ids``; a sample of a stream has its id at ``key``.

    Only batches that the trainer fetches for a step have them, by :meth:`fetch`.

    ``starts`` are those of a packed dataset, see :func:`packed_starts`; ``batches`` are as many as this process gets in
    an epoch, None if that is not known.
    """

    def __init__(self, trainer: Any, pruner: Pruner, key: str | None = None) -> None:
        self._trainer, self._pruner, self._key = trainer, pruner, key
        self.starts = packed_starts(data_of(trainer))
        self.batches: int | None = None
        self._fetches = False  # whether the trainer fetches the batches of a step
        self._rest = 0  # how many rows are left for the last batches of several processes, if these are not full

    def with_ids(self, loader: DataLoader[Any], *, tells: bool = False) -> DataLoader[Any]:
        """Return a loader like this one, which accelerate has not dealt yet. The given one is not changed.

        ``tells`` is as for :class:`Collate`.
        """
        # Only where one process deals out the parts of a batch they have to be a tensor: which would go to the device
        # with the batch, and its way back would make every step wait for all that the device has still to do.
        dealt = self._key is not None or bool(self._trainer.accelerator.dispatch_batches)
        ids = SampleIds(self._pruner.samples, self._pruner.keys)
        collate = _CollateWithIds(Collate(loader.collate_fn, tells=tells), self.starts, self._key, ids, dealt)
        replaced: dict[str, Any] = {"collate_fn": collate}
        if not isinstance(loader.dataset, IterableDataset):
            _check_rows(loader.dataset, self._trainer)
            replaced["dataset"] = Indexed(loader.dataset)
        like: Any = object.__new__(type(loader))
        vars(like).update(vars(loader) | replaced | {"_iterator": None})
        return like  # type: ignore[no-any-return]

    def fetch(self, own: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Return what a trainer's ``get_batch_samples`` does, with ids in the batches."""
        self._fetches = True
        try:
            return own(*args, **options)
        finally:
            self._fetches = False

    def dealt(self, loader: Any, prepared: Any) -> None:
        """Take note of the batches of a loader that has become ``prepared``.

        Hide their ids where a callback iterates it: it may call the model with its batches.
        """
        kind: Any = type(prepared)

        def iterate(this: Any) -> Iterator[Any]:
            return map(self._shown, kind.__iter__(this))

        hiding = type(kind.__name__, (kind,), {"__iter__": iterate, "__module__": kind.__module__})
        vars(object)["__class__"].__set__(prepared, hiding)  # accelerate's loaders say that they are PyTorch's
        self.batches = len(prepared) if hasattr(getattr(prepared, "dataset", None), "__len__") else None
        args, cut = self._trainer.args, getattr(loader, "batch_sampler", None)
        if self.batches is not None and args.world_size > 1 and type(cut) is BatchSampler and not cut.drop_last:
            processes = 1 if args.accelerator_config.split_batches else args.world_size
            self._rest = len(cut.sampler) % (cut.batch_size * processes)  # type: ignore[arg-type]

    def _shown(self, batch: Any) -> Any:
        if not self._fetches:
            take_ids(batch)
        return batch

    @staticmethod
    def trained_before(options: Any) -> int:
        """Return how many batches of an epoch were trained on before the run went on; of ``_run_epoch`` the options."""
        resumed = options["resume_from_checkpoint"] is not None and options["epoch"] == options["epochs_trained"]
        return int(options["steps_trained_in_current_epoch"]) if resumed else 0

    def repeats(self, batch: int) -> bool:
        """Whether accelerate may fill up the batch with this number by samples that came before."""
        return bool(self._rest) and batch == self.batches

    def own(self, ids: SomeIds) -> SomeIds:
        """Return the places of the samples in a batch that :meth:`repeats` that are none of those: each counts once."""
        rows = np.arange(len(ids)) if self.starts is None else self.row_of(ids)
        rows = np.cumsum(np.diff(rows, prepend=rows[:1]) != 0)  # from 0, in their order
        return np.flatnonzero(rows < self._rest - self._trainer.args.process_index * (rows[-1] + 1))

    def row_of(self, ids: SomeIds) -> npt.NDArray[np.int64]:
        """Return in which row of a packed dataset each sample is."""
        return np.asarray(np.searchsorted(self.starts, ids, "right") - 1)  # type: ignore[call-overload]


@dataclass
class _CollateWithIds:
    """The trainer's collate function, whose batches get the ids of their samples; as a tensor, if they are dealt."""

    collate: Collate
    starts: npt.NDArray[np.int64] | None
    key: str | None
    ids: SampleIds
    dealt: bool

    def __call__(self, fetched: Any) -> Any:
        if self.key is None:
            places, samples = fetched
        else:
            places = [self.ids.of(_id_in(sample, self.key)) for sample in fetched]
            samples = [{name: value for name, value in sample.items() if name != self.key} for sample in fetched]
        ids, batch = self.collate((np.asarray(places, dtype=np.int64), samples))
        if len(ids) < len(places):  # where accelerate fills a last batch, its rows are counted
            ids = ids[:0]
        if self.starts is not None and len(ids):
            ids = np.concatenate([np.arange(self.starts[row], self.starts[row + 1]) for row in ids])
        _check_batch(batch)
        batch[IDS] = torch.from_numpy(ids) if self.dealt else ids
        return batch


def _id_in(sample: Any, key: str) -> Any:
    try:
        return sample[key]
    except (KeyError, TypeError, IndexError):
        raise PrunedataError(
            f"Expected samples of the stream that are dicts with an id at {key!r}, as id= names. Got {shown(sample)}."
        ) from None
