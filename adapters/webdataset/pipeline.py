"""A pipeline of pairs: the stages that follow see the samples alone, and the ids go past them."""

from collections.abc import Callable
from typing import Any

import webdataset as wds
from webdataset import compat, filters

from prunedata.adapters.webdataset.stages import Batched, Carried, Keep, Lifted, function_of
from prunedata.errors import PrunedataError
from prunedata.streams.maskfile import MaskFile, Resumable

__all__ = ["PrunedPipeline"]

# Stages of WebDataset that give at most one sample for each that they take, before they take the next one.
_ONE_FOR_ONE = frozenset(
    getattr(filters, name)
    for name in ("_associate", "_decode", "_map", "_map_dict", "_map_tuple", "_rename", "_select", "_to_tuple")
)


def _refused(name: str, why: str) -> Callable[..., Any]:
    def refuse(self: Any, *args: Any, **kw: Any) -> Any:
        raise PrunedataError(f"Expected stages that pass one epoch's samples on, once each. Got {name}(): {why}.")

    refuse.__doc__ = f"Refused: {why}."
    return refuse


class PrunedPipeline(Resumable, wds.DataPipeline, compat.FluidInterface):  # type: ignore[misc]
    """A pipeline of ``(id, sample)`` pairs: the stages that follow see the samples alone."""

    def __init__(self, mask: MaskFile, carried: Carried | None = None) -> None:
        super().__init__()
        self.mask, self._carried = mask, carried
        self.dealer: Keep | None = None
        """The stage that deals the kept samples to the ranks, if one does."""

    @property
    def place(self) -> tuple[int, int]:
        """Which rank's samples it passes on, of how many ranks."""
        return (0, 1) if self.dealer is None else self.dealer.place

    @place.setter
    def place(self, place: tuple[int, int]) -> None:
        if self.dealer is not None:
            self.dealer.place = place

    def iterator1(self) -> Any:
        """One pass, with the ids that came beside the samples, or in them."""
        pairs = super().iterator1()
        return pairs if self._carried is None else self._carried(pairs)

    def append(self, stage: Any) -> None:
        """Append a stage that turns samples into samples, in their order; it may leave some out.

        WebDataset's own ``shuffle``, ``detshuffle`` and ``batched`` are known; what follows ``batched`` sees
        batches, and the ids become an ndarray of int64, shape (n,).
        """
        kind = function_of(stage)
        if kind is filters._shuffle or isinstance(stage, filters.detshuffle):
            self.pipeline.append(stage)  # what it shuffles are the pairs
        elif kind is filters._batched:
            if any(isinstance(before, Batched) for before in self.pipeline):
                raise PrunedataError("Expected samples to batch. Got batches: batch once, at the end.")
            self.pipeline.append(Batched(*stage.args, **stage.kw))
        elif kind in (filters._unbatched, filters._unlisted) or isinstance(stage, (filters.Cached, filters.LMDBCached)):
            raise PrunedataError(f"Expected stages that pass one epoch's samples on, once each. Got {stage!r}.")
        elif isinstance(before := self.pipeline[-1], Lifted) and function_of(before.stages[-1]) in _ONE_FOR_ONE:
            self.pipeline[-1] = Lifted([*before.stages, stage])  # pairs are taken apart once for both
        else:
            self.pipeline.append(Lifted([stage]))

    _endless = "a second pass would be of the next epoch under this one's mask; loop over pruner.epochs()"
    _cached = "it would keep the samples of the first epoch; cache shards, by cache_dir= of the WebDataset"
    repeat, with_epoch = _refused("repeat", _endless), _refused("with_epoch", _endless)
    mcached, lmdb_cached = _refused("mcached", _cached), _refused("lmdb_cached", _cached)
    unbatched = _refused("unbatched", "the ids are those of the batch; batch once, at the end")
    unlisted = _refused("unlisted", "the ids are those of the list; batch once, at the end")
    rsample = _refused("rsample", "it drops kept samples at random; let the pruner choose")
