"""Grain: ``wrap(dataset, pruner)`` reads only the kept samples, each with its id, by a pipeline built in each epoch.

Grain's ``filter`` does not change the length of a dataset, and ``batch`` uses the length at the time of its call. So
the part of a pipeline that depends on the length is built anew in each epoch, over a source of the kept samples.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.checks import shown
from prunedata.counting.counts import Tally
from prunedata.errors import LossError, PrunedataError
from prunedata.run.adapter import Adapter, Delivery, check_iterated
from prunedata.run.epoch import Epoch
from prunedata.run.identity import prints_by
from prunedata.run.pruner import Pruner

try:
    import grain
except ImportError as error:
    raise ImportError("prunedata.adapters.grain needs Grain: pip install grain") from error

__all__ = ["wrap"]

MOVES = ("Shuffle", "Mixed", "Repeat", "Filter")
"""Parts of the names of Grain's datasets that have other samples at their places in every epoch, or none."""


def samples_in(dataset: Any, *_: Any, **__: Any) -> int:
    """Return the number of samples in a dataset, none of which may be a batch: it would be taken for a sample."""
    if not isinstance(dataset, grain.MapDataset):
        raise PrunedataError(_not_a_dataset(dataset))
    if any("Batch" in _name(stage) for stage in _stages(dataset)):
        raise PrunedataError(
            "Expected a dataset of samples. Got one of batches: call batch() in build=, as wrap(dataset, pruner, "
            "lambda kept: kept.batch(64))."
        )
    return len(dataset)


def wrap(
    dataset: "grain.MapDataset[Any]",
    pruner: Pruner,
    build: Callable[["grain.MapDataset[Any]"], Any] | None = None,
    *,
    shuffle: bool = True,
) -> "grain.IterDataset[Any]":
    """Wrap a MapDataset so that each pass delivers the samples that the epoch keeps, as ``(id, element)``.

    Parameters
    ----------
    dataset : grain.MapDataset
        Of ``pruner.samples`` samples. A sample's id is its position. It may have stages for single samples, as ``map``
        and ``random_map``, which run for kept samples only; but no ``shuffle``, ``filter``, ``mix`` or ``repeat``.
    pruner : Pruner
        The run. Iterate inside ``for epoch in pruner.epochs():``.
    build : callable, optional
        Called in each epoch with a MapDataset of its pairs ``(id, element)``, in their order; returns the MapDataset or
        IterDataset to iterate, which must yield ``(ids, ...)``: ``lambda kept: kept.batch(64)``. Call
        ``to_iter_dataset(read_options)`` and ``mp_prefetch(options)`` there, too.
    shuffle : bool
        Whether to shuffle, by the run's seed and the epoch's number; otherwise ids ascend.

    Returns
    -------
    grain.IterDataset
        Made once for the whole run. In a run that resumes within an epoch it yields the remaining samples, in the same
        order and with the same random numbers. Save the pruner's state; that of an iterator has only the epoch's
        number.

    Raises
    ------
    PrunedataError
        If ``dataset`` is no MapDataset, has another number of samples, or does not keep its samples at their positions.
        In a pass: if the result of ``build`` is no dataset, has no ids, or has no samples.
    LossError
        In a pass that yields more samples than the epoch has.
    """
    if not isinstance(dataset, grain.MapDataset):
        raise PrunedataError(_not_a_dataset(dataset))
    moved = next((name for name in map(_name, _stages(dataset)) if any(part in name for part in MOVES)), None)
    if moved is not None:
        raise PrunedataError(
            f"Expected a MapDataset with the same sample at each place in every epoch. Got {moved} in it: leave it "
            "out. wrap() shuffles, and pruner.epochs() repeats."
        )
    if len(dataset) != pruner.samples:
        raise PrunedataError(
            f"Expected a dataset of {pruner.samples} samples, as the Pruner has. Got one of {len(dataset)}: "
            "build the Pruner with len(dataset), and call batch() in build=."
        )
    pruner.trains_on(prints_by(dataset.__getitem__))
    return PrunedDataset(dataset, pruner, build or grain.MapDataset.to_iter_dataset, shuffle)


def _not_a_dataset(value: object) -> str:
    """Return the error message for something that is no MapDataset."""
    got = f"Expected a grain.MapDataset. Got a {_name(value)}"
    if isinstance(value, grain.IterDataset):
        return f"{got}: wrap the MapDataset, and call to_iter_dataset() in build=."
    if isinstance(value, grain.DataLoader):
        return f"{got}, whose sampler and length are fixed: use grain.MapDataset.source(...) of its source."
    return f"{got}: wrap it by grain.MapDataset.source(...)."


def _name(dataset: object) -> str:
    return type(dataset).__name__.lstrip("_")


def _stages(dataset: Any) -> list[Any]:
    """Return the dataset and all datasets that it is made from; mp_prefetch() has one for each worker."""
    shards = getattr(dataset, "_datasets", ())
    parents = [*getattr(dataset, "_parents", ()), *(shards if isinstance(shards, list) else ())]
    return [dataset, *(stage for parent in parents for stage in _stages(parent))]


class GrainRun(Adapter):
    """Reports what the dataset that was iterated last has delivered."""

    key = "grain"
    by_weight = True

    def begin_epoch(self, epoch: Epoch) -> None:
        """Reset the deliveries: the dataset begins again."""
        self.delivery = None

    def end_epoch(self, epoch: Epoch, tally: Tally) -> None:
        """Raise if the dataset was not iterated, and no observed losses explain that."""
        if self.delivery is None:
            check_iterated(epoch, tally, "dataset")


class Kept:
    """The source of an epoch: its samples, in its order. It is sent to worker processes."""

    def __init__(self, dataset: "grain.MapDataset[Any]", ids: npt.NDArray[np.integer], epoch: int) -> None:
        self.dataset, self.ids = dataset, ids
        # Like the places of a repeated dataset, so that random_map draws other numbers in each epoch.
        self.first = epoch * len(dataset)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, place: int) -> tuple[np.int64, Any]:
        number = int(self.ids[place])
        sample = self.dataset[self.first + number]
        if sample is None:
            raise PrunedataError(f"Expected a sample for each id. Got None for {number}, which Grain would leave out.")
        return np.int64(number), sample


class PrunedDataset(grain.IterDataset):  # type: ignore[misc]
    """The dataset that :func:`wrap` returns."""

    def __init__(self, dataset: Any, pruner: Pruner, build: Callable[[Any], Any], shuffle: bool) -> None:
        super().__init__()
        # Otherwise Grain would read ahead of the loop, and samples would be reported that did not reach it.
        self.has_child = True
        self._dataset, self._pruner, self._build, self._shuffle = dataset, pruner, build, shuffle
        self._run = pruner.attach(GrainRun())

    def __iter__(self) -> "grain.DatasetIterator[Any]":
        epoch = self._pruner.current
        with self._pruner.overhead:
            ids = np.concatenate([np.arange(0), *epoch.order(shuffle=self._shuffle)])
            ids = ids.astype(np.min_scalar_type(self._pruner.samples))  # they are sent to each worker
        built = self._build(grain.MapDataset.source(Kept(self._dataset, ids, epoch.number)))
        if not isinstance(built, grain.MapDataset | grain.IterDataset):
            raise PrunedataError(f"Expected build= to return a MapDataset or an IterDataset. Got a {_name(built)}.")
        delivery = self._run.delivery = Delivery(epoch.number, delivered=0)
        return Pass(built, len(ids), delivery, is_rest=len(ids) < epoch.kept)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Raise: this dataset cannot be split between worker processes, as no Pruner can be sent to them."""
        raise PrunedataError(WORKERS)

    def __reduce__(self) -> Any:
        raise PrunedataError(WORKERS)


WORKERS = (
    "Expected mp_prefetch() in build=, as lambda kept: kept.batch(64).to_iter_dataset().mp_prefetch(options). "
    "Got it after wrap(), where it would have to copy the Pruner into other processes."
)


class Pass(grain.DatasetIterator):  # type: ignore[misc]
    """One pass over what remains of an epoch, which counts the delivered samples."""

    def __init__(self, built: Any, expected: int, delivery: Delivery, *, is_rest: bool) -> None:
        self._inner = iter(built)
        super().__init__(self._inner)
        self._expected, self._delivery, self._delivered = expected, delivery, 0
        self._dropped, self._is_rest = _most_dropped(built), is_rest

    def __next__(self) -> Any:
        if self._delivery.ended is not None:  # batch() calls it once more
            raise StopIteration
        try:
            element = next(self._inner)
        except StopIteration:
            self._end()
            raise
        self._delivered += _size(element)
        if self._delivered > self._expected:
            self.close()
            raise LossError(
                f"Expected {self._expected} samples in a pass, as the epoch keeps. Got more: is there a repeat() in "
                "build=? `for epoch in pruner.epochs():` begins the next pass."
            )
        self._delivery.delivered = self._delivered
        return element

    def _end(self) -> None:
        self.close()
        missing = self._expected - self._delivered
        if missing <= self._dropped:
            if not self._delivered and missing and not self._is_rest:
                raise PrunedataError(
                    f"Expected at least one batch in each epoch. Got {missing} samples, which make none: call batch() "
                    "without drop_remainder, use smaller batches, or prune less."
                )
            self._delivery.left_out = missing
        self._delivery.end()

    def get_state(self) -> dict[str, Any]:
        """Return the number of the epoch. What remains of it is in the pruner's state."""
        return {"epoch": self._delivery.epoch}

    def set_state(self, state: dict[str, Any]) -> None:
        """Check that a state is of this epoch. Nothing is skipped: the pass only has what remains of the epoch."""
        if state != self.get_state() or self._delivered:
            epoch = state["epoch"] if isinstance(state, dict) and "epoch" in state else state
            raise PrunedataError(
                f"Expected a new iterator of epoch {shown(epoch)}, as the state. Got one of epoch "
                f"{self._delivery.epoch} that has delivered {self._delivered} samples: call pruner.load_state_dict() "
                "first, and iterate the dataset again."
            )


def _size(element: Any) -> int:
    """Return the number of samples in an element, by its ids."""
    ids = element[0] if isinstance(element, tuple) and len(element) > 1 else None
    if not (isinstance(ids, np.ndarray | np.generic) and ids.dtype.kind == "i" and ids.ndim <= 1):
        raise PrunedataError(
            "Expected pairs (ids, batch) from build=, with ids of int64, shape (n,). "
            f"Got a {_name(element)}: keep the ids in map(), as map(lambda pair: (pair[0], load(pair[1])))."
        )
    return int(ids.size)


def _most_dropped(built: Any) -> int:
    """Return the most samples that ``drop_remainder`` may drop: less than a batch, in each worker that makes them."""
    stages = [stage for stage in _stages(built) if getattr(stage, "_drop_remainder", False)]
    # A MapDataset makes its batches before it is split between workers, an IterDataset in each worker.
    whole = {id(stage): stage for stage in stages if isinstance(stage, grain.MapDataset)}.values()
    cut = [stage for stage in stages if isinstance(stage, grain.IterDataset)]
    return sum(stage._batch_size - 1 for stage in [*whole, *cut])
