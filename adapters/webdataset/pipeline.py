"""A WebDataset pipeline of (id, sample) pairs, whose stages get the samples alone."""

import functools
from collections.abc import Callable
from typing import Any

import webdataset as wds
from webdataset import compat, filters

from prunedata.adapters.webdataset.stages import Keep, Pairs, WithIds, collate_with_ids, function_of
from prunedata.errors import PrunedataError
from prunedata.streams.maskfile import MaskFile, Resumable

# Stages of WebDataset that yield at most one sample for each that they take, before they take the next one.
_ONE_FOR_ONE = frozenset(
    getattr(filters, name)
    for name in ("_associate", "_decode", "_map", "_map_dict", "_map_tuple", "_rename", "_select", "_to_tuple")
)


def _refused(name: str, why: str) -> Callable[..., Any]:
    def refuse(self: Any, *args: Any, **kw: Any) -> Any:
        raise PrunedataError(f"Expected stages that pass each sample of one epoch on once. Got {name}(): {why}.")

    refuse.__doc__ = f"Refused: {why}."
    return refuse


def _batched_pairs(
    batchsize: int = 20, collation_fn: Callable[[Any], Any] | None = filters.default_collation_fn, partial: bool = True
) -> Any:
    """Return WebDataset's own stage of these arguments, for pairs."""
    return filters.batched(batchsize, collation_fn=functools.partial(collate_with_ids, collation_fn), partial=partial)


class PrunedPipeline(Resumable, wds.DataPipeline, compat.FluidInterface):  # type: ignore[misc]
    """A pipeline that yields ``(id, sample)``, and passes the samples alone to the stages that follow."""

    def __init__(self, mask: MaskFile, split_ids: Callable[[Pairs], Pairs] | None = None) -> None:
        super().__init__()
        self.mask, self._split_ids = mask, split_ids
        self.dealer: Keep | None = None  # the stage that deals the kept samples to the ranks, with ``deal=True``

    @property
    def place(self) -> tuple[int, int]:
        """The rank whose samples are passed on, and the number of ranks."""
        return (0, 1) if self.dealer is None else self.dealer.place

    @place.setter
    def place(self, place: tuple[int, int]) -> None:
        if self.dealer is not None:
            self.dealer.place = place

    def iterator1(self) -> Any:
        """Iterate once, with the ids that came beside the samples, or in them."""
        pairs = super().iterator1()
        return pairs if self._split_ids is None else self._split_ids(pairs)

    def append(self, stage: Any) -> None:
        """Append a stage that maps samples to samples, in their order; it may leave some out.

        WebDataset's own ``shuffle``, ``detshuffle`` and ``batched`` work, too. Stages after ``batched`` get batches,
        and the ids become an ndarray of int64, shape (n,).
        """
        kind = function_of(stage)
        if kind is filters._shuffle or isinstance(stage, filters.detshuffle):
            self.pipeline.append(stage)  # it shuffles the pairs
        elif kind is filters._batched:
            if any(function_of(before) is filters._batched for before in self.pipeline):
                raise PrunedataError("Expected samples to batch. Got batches: batch once, at the end.")
            self.pipeline.append(_batched_pairs(*stage.args, **stage.kw))
        elif kind in (filters._unbatched, filters._unlisted) or isinstance(stage, (filters.Cached, filters.LMDBCached)):
            raise PrunedataError(f"Expected stages that pass each sample of one epoch on once. Got {stage!r}.")
        elif isinstance(before := self.pipeline[-1], WithIds) and function_of(before.stages[-1]) in _ONE_FOR_ONE:
            self.pipeline[-1] = WithIds([*before.stages, stage])  # split the pairs once for both stages
        else:
            self.pipeline.append(WithIds([stage]))

    _endless = "a second pass would have the mask of this epoch; loop over pruner.epochs()"
    _cached = "it would keep the samples of the first epoch; cache shards, by cache_dir= of the WebDataset"
    repeat, with_epoch = _refused("repeat", _endless), _refused("with_epoch", _endless)
    mcached, lmdb_cached = _refused("mcached", _cached), _refused("lmdb_cached", _cached)
    unbatched = _refused("unbatched", "the ids are those of the batch; batch once, at the end")
    unlisted = _refused("unlisted", "the ids are those of the list; batch once, at the end")
    rsample = _refused("rsample", "it drops kept samples at random; let the pruner choose")
