"""``wrap``: a WebDataset with a further stage, which drops pruned samples."""

from functools import partial
from typing import Any

import webdataset as wds
from webdataset import compat, shardlists, tariterators

from prunedata.adapters.webdataset.pipeline import PrunedPipeline
from prunedata.adapters.webdataset.stages import Keep, end_shards, function_of, split_ids
from prunedata.errors import PrunedataError
from prunedata.run.identity import prints_by
from prunedata.run.pruner import Pruner
from prunedata.streams.maskfile import publish
from prunedata.streams.shards import ShardIndex

_ENDLESS = (shardlists.ResampledShards, shardlists.DirectoryShardList)
_LAST = (tariterators.group_by_keys, tariterators.tarfile_samples)


def keys_in(_: Any, index: ShardIndex | None = None, *__: Any, **___: Any) -> list[str] | None:
    """Return the keys of the samples in the index."""
    return index.keys if isinstance(index, ShardIndex) else None


def samples_in(dataset: Any, index: ShardIndex | None = None, *_: Any, **__: Any) -> int:
    """Return the number of samples in the index."""
    return len(_checked(dataset, index))


def wrap(
    dataset: wds.WebDataset,
    pruner: Pruner,
    index: ShardIndex | None = None,
    *,
    deal: bool = False,
    id_key: str | None = None,
) -> PrunedPipeline:
    """Wrap a WebDataset so that each pass reads all of its shards and passes on the kept samples.

    Call it on the dataset itself, before ``shuffle``, ``decode`` and the rest, which follow as usual.

    Parameters
    ----------
    dataset : WebDataset
        Of shards that are in the index. Use ``detshuffle=True`` or ``shardshuffle=False``: the default shuffle
        repeats one order of shards in every epoch.
    pruner : Pruner
        The run, with ``Pruner(len(index), ...)``. Iterate inside ``for epoch in pruner.epochs():``.
    index : ShardIndex
        The samples of the shards, and their ids.
    deal : bool
        With several ranks: whether each of them reads all shards, in the same order (``nodesplitter=None``), and the
        kept samples are dealt to them in turn. Then their batches are those of one process. If False, a
        ``nodesplitter`` assigns each rank its own shards.
    id_key : str, optional
        Needed if one of your stages sorts, drops or replaces the samples of a batch, as ``map`` after ``batched`` may.
        Every sample then has its id under this key, which begins with ``_`` so that ``decode`` leaves it alone. Pass it
        on to the end: under the key, or as the last field, as by ``to_tuple("jpg", "cls", "__id__")``. The pipeline
        removes it again.

    Returns
    -------
    PrunedPipeline
        A pipeline whose samples are ``(id, sample)`` and whose batches, after ``batched``, are ``(ids, batch)``.
        Wrap a DataLoader over it by ``prunedata.adapters.torch.wrap``, which removes the ids from its batches.

    Raises
    ------
    PrunedataError
        If the pruner and the index have different numbers of samples, shards have changed since the index was made, or
        the dataset cannot yield each sample once: resampled shards, ``repeat()``, ``with_epoch()``.
    """
    index = _checked(dataset, index)
    if len(index) != pruner.samples:
        raise PrunedataError(
            f"Expected an index of {pruner.samples} samples, as the Pruner has. Got one of {len(index)}: "
            "build the Pruner with len(index)."
        )
    _check_stages(dataset)
    sizes = {shard.url: shard.size for shard in index.shards}

    def name_of(sample: int) -> Any:
        # Shards with the same keys look alike in any order, so the shard's name and size count, too. Its folder does
        # not, as shards may move.
        url, key = index.place_of(sample)
        return key if pruner.keys is not None else (key, url.partition("?")[0].rpartition("/")[2], sizes[url])

    pruner.trains_on(prints_by(name_of), lambda: index.keys)
    _check_shards(dataset.pipeline[0], index)
    if id_key is not None and (not isinstance(id_key, str) or not id_key.startswith("_")):
        raise PrunedataError(f"Expected an id_key that begins with _, which decode() leaves alone. Got {id_key!r}.")
    split = None if id_key is None else partial(split_ids, key=id_key, samples=len(index))
    pruned = PrunedPipeline(publish(pruner), split)
    for stage in dataset.pipeline:
        if function_of(stage) is tariterators.group_by_keys:
            pruned.pipeline.append(end_shards)
        pruned.pipeline.append(stage)
    keep = Keep(index, pruned.mask, id_key)
    pruned.pipeline.append(keep)
    pruned.dealer = keep if deal else None
    return pruned


def _checked(dataset: Any, index: Any) -> ShardIndex:
    """Return the index. Raise :class:`PrunedataError` unless both are what :func:`wrap` takes."""
    if isinstance(dataset, wds.WebLoader):
        raise PrunedataError(
            "Expected a WebDataset. Got a WebLoader, which has a DataLoader inside: wrap the WebDataset, make a "
            "DataLoader of PyTorch's over its stages, and wrap that."
        )
    if not isinstance(dataset, wds.DataPipeline):
        raise PrunedataError(
            f"Expected a WebDataset. Got {type(dataset).__name__}: give the shards of all parts to one WebDataset, or "
            "call wrap(mixture, pruner, id=...) of prunedata.adapters.iterable."
        )
    if not isinstance(index, ShardIndex):
        raise PrunedataError(
            f"Expected a ShardIndex. Got {type(index).__name__}: ShardIndex.load(path) reads one that was saved."
        )
    return index


def _check_stages(dataset: wds.DataPipeline) -> None:
    if dataset.repetitions != 1 or any(
        isinstance(stage, _ENDLESS) or function_of(stage) is shardlists.resampled_ for stage in dataset.pipeline
    ):
        raise PrunedataError(
            "Expected a dataset that gives each sample once in a pass. Got one with resampled shards, repeat() or "
            "with_epoch(), in which an epoch has no fixed set of samples: leave these out, as the loop over the run's "
            "epochs repeats the shards. With nodes that need as many batches each, pass deal=True."
        )
    last = dataset.pipeline[-1]
    if last is not compat.check_empty and function_of(last) not in _LAST:
        raise PrunedataError(
            f"Expected a WebDataset with no stage after it. Got {last!r} after it: call wrap() first and the stages "
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
