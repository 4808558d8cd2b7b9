"""The stages of a pruned pipeline: one that drops samples, and those around which ids pass."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import webdataset as wds
from webdataset import filters
from webdataset.utils import pytorch_worker_info

from prunedata.errors import PrunedataError
from prunedata.streams.maskfile import MaskFile
from prunedata.streams.shards import ShardIndex

__all__ = ["Batched", "Carried", "Keep", "Lifted", "end_shards", "function_of"]

Pairs = Iterator[tuple[Any, Any]]


def function_of(stage: Any) -> Any:
    """What a stage made by a function of WebDataset's does; None for other stages."""
    return getattr(stage, "f", None)


def end_shards(files: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Mark the end of each shard, also of one that is cut off: else its last sample may go on in the next."""
    url = None
    for file in files:
        if file:
            if url not in (None, file["__url__"]):
                yield {}
            url = file["__url__"]
        yield file


class Keep:
    """The stage that drops pruned samples. It reads the mask at the beginning of each pass, wherever it runs.

    Attributes
    ----------
    place : tuple of int
        Which rank it deals the kept samples to, of how many; (0, 1) passes them all on.
    """

    def __init__(self, index: ShardIndex, mask: MaskFile, id_key: str | None = None) -> None:
        self.index, self.mask, self.place = index, mask, (0, 1)
        self.id_key = id_key
        """Under this key each sample has its id, too."""

    def __call__(self, samples: Iterable[dict[str, Any]]) -> Pairs:
        """Yield the samples that are kept, each with its id, or of those every so many-th."""
        rank, ranks = self.place
        return islice(self._kept(samples), rank, None, ranks)

    def _kept(self, samples: Iterable[dict[str, Any]]) -> Pairs:
        keep = self.mask.read(pytorch_worker_info()[2])
        url, ids = None, dict[str, int]()
        for sample in samples:
            if sample["__url__"] != url:
                url = sample["__url__"]
                ids = self.index.ids_of(url)
            number = ids.get(sample["__key__"])
            if number is None:
                raise PrunedataError(
                    f"Expected a sample of the index. Got {sample['__key__']!r} in {url}, which was not there when "
                    "the shard was scanned: scan again."
                )
            if keep[number]:
                yield number, sample if self.id_key is None else {**sample, self.id_key: number}


class Lifted:
    """Stages over pairs. Stages are generators: when one yields, what it took last is what it made that of."""

    def __init__(self, stages: list[Any]) -> None:
        self.stages = stages

    def __call__(self, pairs: Pairs) -> Pairs:
        """Yield what the stages make of the samples, each with its id."""
        waiting: Any = None

        def samples() -> Iterator[Any]:
            nonlocal waiting
            for waiting, sample in pairs:  # noqa: B007 (read where the stages give)
                yield sample

        made: Any = samples()
        for stage in self.stages:
            made = wds.DataPipeline().invoke(stage, made)
        for sample in made:
            if waiting is None:
                raise PrunedataError(
                    f"Expected a stage that yields at most one sample for each that it takes. Got {self.stages[-1]!r}, "
                    "which yields more or holds samples back, so their ids are lost. To shuffle, use shuffle()."
                )
            number, waiting = waiting, None
            yield number, sample


class Carried:
    """What passes the ids on that samples carry: those under a key of a dict, or in the last field of a tuple."""

    def __init__(self, key: str, samples: int) -> None:
        self.key, self.samples = key, samples

    def __call__(self, pairs: Pairs) -> Pairs:
        """Yield each sample or batch without its ids, and these beside it."""
        for _, made in pairs:
            if isinstance(made, dict) and self.key in made:
                yield self._checked(made[self.key]), {name: value for name, value in made.items() if name != self.key}
            elif isinstance(made, (list, tuple)) and len(made) > 1:
                yield self._checked(made[-1]), made[:-1]
            else:
                raise PrunedataError(
                    f"Expected the stages to pass the ids on: under {self.key!r} of a dict, or as the last field of a "
                    f"tuple, as by to_tuple(..., {self.key!r}). Got a {type(made).__name__} without them."
                )

    def _checked(self, given: Any) -> Any:
        ids = np.asarray(given)
        if ids.dtype.kind not in "iu" or ids.ndim > 1 or not ids.size or ids.min() < 0 or ids.max() >= self.samples:
            raise PrunedataError(
                f"Expected the ids of samples, from 0 to {self.samples - 1}, under {self.key!r} or as the last field. "
                f"Got {given!r}."
            )
        return int(ids) if not ids.ndim else ids.astype(np.int64)


class Batched:
    """Pairs into a pair of ids and a batch; by default as WebDataset's ``batched``."""

    def __init__(
        self,
        batchsize: int = 20,
        collation_fn: Callable[[Any], Any] | None = filters.default_collation_fn,
        partial: bool = True,
    ) -> None:
        self.size, self.collate, self.partial = batchsize, collation_fn, partial

    def __call__(self, pairs: Pairs) -> Pairs:
        """Yield batches, each with its ids."""
        waiting: list[tuple[int, Any]] = []
        for pair in pairs:
            waiting.append(pair)
            if len(waiting) == self.size:
                yield self._batch(waiting)
                waiting = []
        if waiting and self.partial:
            yield self._batch(waiting)

    def _batch(self, pairs: list[tuple[int, Any]]) -> tuple[Any, Any]:
        samples = [sample for _, sample in pairs]
        ids = np.array([number for number, _ in pairs], dtype=np.int64)
        return ids, samples if self.collate is None else self.collate(samples)
