"""WebDataset: ``prune(dataset, pruner, index)`` drops pruned samples before they are decoded.

Every sample is carried through the stages that follow as a pair with its id, so that ids outlive ``to_tuple`` and
any ``map``, and what leaves the pipeline is ``(id, sample)``.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

try:
    import webdataset as wds
    from webdataset import compat, filters, shardlists, tariterators
except ImportError as error:
    raise ImportError("prunedata.adapters.webdataset needs WebDataset: pip install 'prunedata[webdataset]'") from error

from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner
from prunedata.streams.maskfile import MaskFile, Resumable, publish
from prunedata.streams.shards import ShardIndex

__all__ = ["ShardIndex", "prune"]

Pairs = Iterator[tuple[Any, Any]]


def prune(dataset: wds.WebDataset, pruner: Pruner, index: ShardIndex) -> "PrunedPipeline":
    """Wrap a WebDataset so that each pass reads all of its shards and passes on the kept samples.

    Call it on the dataset itself, before ``shuffle``, ``decode`` and the rest, which then follow as ever.

    Parameters
    ----------
    dataset : WebDataset
        Of shards that are in the index. Use ``detshuffle=True`` or ``shardshuffle=False``: the default shuffle
        repeats one order of shards in every epoch.
    pruner : Pruner
        The run, with ``Pruner(len(index), ...)``. Iterate inside ``for epoch in pruner.epochs():``.
    index : ShardIndex
        The shards' samples, which says the ids.

    Returns
    -------
    PrunedPipeline
        A pipeline whose samples are ``(id, sample)`` and whose batches, after ``batched``, are ``(ids, batch)``.
        A DataLoader over it goes through ``prunedata.adapters.torch.prune``, which takes the ids off again.

    Raises
    ------
    PrunedataError
        If the pruner and the index do not agree, shards have changed since the index was made, or the dataset
        cannot give each sample once: resampled shards, ``repeat()``, ``with_epoch()``.
    """
    if not isinstance(dataset, wds.DataPipeline):
        raise PrunedataError(f"Expected a WebDataset. Got {type(dataset).__name__}.")
    if len(index) != pruner.samples:
        raise PrunedataError(
            f"Expected an index of {pruner.samples} samples, as the Pruner. Got one of {len(index)}: "
            "build the Pruner with len(index)."
        )
    _check_stages(dataset)
    _check_shards(dataset.pipeline[0], index)
    pruned = PrunedPipeline(publish(pruner))
    for stage in dataset.pipeline:
        if _function(stage) is tariterators.group_by_keys:
            pruned.pipeline.append(_end_shards)
        pruned.pipeline.append(stage)
    pruned.pipeline.append(_Keep(index, pruned.mask))
    return pruned


_ENDLESS = (shardlists.ResampledShards, shardlists.DirectoryShardList)
_LAST = (tariterators.group_by_keys, tariterators.tarfile_samples)


# Stages of WebDataset that give at most one sample for each that they take, before they take the next one.
_ONE_FOR_ONE = frozenset(
    getattr(filters, name)
    for name in ("_associate", "_decode", "_map", "_map_dict", "_map_tuple", "_rename", "_select", "_to_tuple")
)


def _check_stages(dataset: wds.DataPipeline) -> None:
    if dataset.repetitions != 1 or any(
        isinstance(stage, _ENDLESS) or _function(stage) is shardlists.resampled_ for stage in dataset.pipeline
    ):
        raise PrunedataError(
            "Expected a dataset that gives each sample once in a pass. Got one with resampled shards, repeat() or "
            "with_epoch(): what an epoch keeps means nothing there."
        )
    last = dataset.pipeline[-1]
    if last is not compat.check_empty and _function(last) not in _LAST:
        raise PrunedataError(
            f"Expected a WebDataset with nothing after it. Got {last!r} after it: call prune() first and the stages "
            "on what it returns, so that pruned samples are neither shuffled nor decoded. To cache, use cache_dir=."
        )


def _check_shards(source: Any, index: ShardIndex) -> None:
    if isinstance(source, shardlists.SimpleShardList) and sorted(source.urls) != sorted(index.urls):
        others = sorted(set(source.urls) ^ set(index.urls)) or ["one of them twice"]
        raise PrunedataError(
            f"Expected the {len(index.urls)} shards of the index, each once. Got {len(source.urls)}; the difference: "
            f"{', '.join(others[:3])}. WebDataset(index.urls, ...) takes them from the index."
        )
    index.check()


def _function(stage: Any) -> Any:
    """What a stage made by a function of WebDataset's does; None for other stages."""
    return getattr(stage, "f", None)


def _refused(name: str, why: str) -> Callable[..., Any]:
    def refuse(self: Any, *args: Any, **kw: Any) -> Any:
        raise PrunedataError(f"Expected stages that pass one epoch's samples on, once each. Got {name}(): {why}.")

    refuse.__doc__ = f"Refused: {why}."
    return refuse


class PrunedPipeline(Resumable, wds.DataPipeline, compat.FluidInterface):  # type: ignore[misc]
    """A pipeline of ``(id, sample)`` pairs: the stages that follow see the samples alone."""

    def __init__(self, mask: MaskFile) -> None:
        super().__init__()
        self.mask = mask

    def append(self, stage: Any) -> None:
        """Append a stage that turns samples into samples, in their order; it may leave some out.

        WebDataset's own ``shuffle``, ``detshuffle`` and ``batched`` are known; what follows ``batched`` sees
        batches, and the ids become an ndarray of int64, shape (n,).
        """
        kind = _function(stage)
        if kind is filters._shuffle or isinstance(stage, filters.detshuffle):
            self.pipeline.append(stage)  # what it shuffles are the pairs
        elif kind is filters._batched:
            if any(isinstance(before, _Batched) for before in self.pipeline):
                raise PrunedataError("Expected samples to batch. Got batches: batch once, at the end.")
            self.pipeline.append(_Batched(*stage.args, **stage.kw))
        elif kind in (filters._unbatched, filters._unlisted) or isinstance(stage, (filters.Cached, filters.LMDBCached)):
            raise PrunedataError(f"Expected stages that pass one epoch's samples on, once each. Got {stage!r}.")
        elif isinstance(before := self.pipeline[-1], _Lifted) and _function(before.stages[-1]) in _ONE_FOR_ONE:
            self.pipeline[-1] = _Lifted([*before.stages, stage])  # pairs are taken apart once for both
        else:
            self.pipeline.append(_Lifted([stage]))

    _endless = "a second pass would be of the next epoch under this one's mask; loop over pruner.epochs()"
    _cached = "it would keep the samples of the first epoch; cache shards, by cache_dir= of the WebDataset"
    repeat, with_epoch = _refused("repeat", _endless), _refused("with_epoch", _endless)
    mcached, lmdb_cached = _refused("mcached", _cached), _refused("lmdb_cached", _cached)
    unbatched = _refused("unbatched", "the ids are those of the batch; batch once, at the end")
    unlisted = _refused("unlisted", "the ids are those of the list; batch once, at the end")
    rsample = _refused("rsample", "it drops kept samples at random; let the pruner choose")


def _end_shards(files: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Mark the end of each shard, also of one that is cut off: else its last sample may go on in the next."""
    url = None
    for file in files:
        if file:
            if url not in (None, file["__url__"]):
                yield {}
            url = file["__url__"]
        yield file


class _Keep:
    """The stage that drops pruned samples. It reads the mask at the beginning of each pass, wherever it runs."""

    def __init__(self, index: ShardIndex, mask: MaskFile) -> None:
        self.index, self.mask = index, mask

    def __call__(self, samples: Iterable[dict[str, Any]]) -> Pairs:
        keep = self.mask.read()
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
                yield number, sample


class _Lifted:
    """Stages over pairs. Stages are generators: when one yields, what it took last is what it made that of."""

    def __init__(self, stages: list[Any]) -> None:
        self.stages = stages

    def __call__(self, pairs: Pairs) -> Pairs:
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
                    f"Expected a stage that takes a sample for each that it gives. Got {self.stages[-1]!r}, which "
                    "gives more or holds samples back, so that nobody knows which is which. To shuffle, use shuffle()."
                )
            number, waiting = waiting, None
            yield number, sample


class _Batched:
    """Pairs into a pair of ids and a batch; by default as WebDataset's ``batched``."""

    def __init__(
        self,
        batchsize: int = 20,
        collation_fn: Callable[[Any], Any] | None = filters.default_collation_fn,
        partial: bool = True,
    ) -> None:
        self.size, self.collate, self.partial = batchsize, collation_fn, partial

    def __call__(self, pairs: Pairs) -> Pairs:
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
