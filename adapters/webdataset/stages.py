"""The stages of a pruned pipeline: one that drops samples, and others that keep ids beside the samples."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import webdataset as wds
from webdataset.utils import pytorch_worker_info

from prunedata.errors import PrunedataError
from prunedata.streams.maskfile import MaskFile
from prunedata.streams.shards import ShardIndex

Pairs = Iterator[tuple[Any, Any]]


def function_of(stage: Any) -> Any:
    """Return the function behind one of WebDataset's own stages; None for other stages."""
    return getattr(stage, "f", None)


def end_shards(files: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Mark the end of each shard, so that the last sample of one that is cut off does not continue in the next."""
    url = None
    for file in files:
        if file:
            if url not in (None, file["__url__"]):
                yield {}
            url = file["__url__"]
        yield file


class Keep:
    """The stage that drops pruned samples. It reads the mask when a pass begins, in whichever process it runs.

    Of the kept samples it passes on the share of ``place``, a rank and the number of ranks; (0, 1) passes on all.
    """

    def __init__(self, index: ShardIndex, mask: MaskFile, id_key: str | None = None) -> None:
        self.index, self.mask, self.place = index, mask, (0, 1)
        self.id_key = id_key  # the key under which each sample gets its id, too

    def __call__(self, samples: Iterable[dict[str, Any]]) -> Pairs:
        """Yield the kept samples of this rank, each with its id."""
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
                    f"Expected a sample of the index. Got {sample['__key__']!r} in {url}, which the shard did not have "
                    "when it was scanned: scan again."
                )
            if keep[number]:
                yield number, sample if self.id_key is None else {**sample, self.id_key: number}


class WithIds:
    """Stages of samples, as one stage of pairs.

    Stages are generators: what one yields was made of the sample that it took last, whose id it gets.
    """

    def __init__(self, stages: list[Any]) -> None:
        self.stages = stages

    def __call__(self, pairs: Pairs) -> Pairs:
        """Yield what the stages make of the samples, each with its id."""
        last_id: Any = None

        def samples() -> Iterator[Any]:
            nonlocal last_id
            for last_id, sample in pairs:  # noqa: B007 (read below, when the stages yield)
                yield sample

        outputs: Any = samples()
        for stage in self.stages:
            outputs = wds.DataPipeline().invoke(stage, outputs)
        for output in outputs:
            if last_id is None:
                raise PrunedataError(
                    f"Expected a stage that takes a sample for each that it yields. Got {self.stages[-1]!r}, which "
                    "yields more or holds samples back, so that samples cannot be matched to their ids. To shuffle, "
                    "use shuffle()."
                )
            number, last_id = last_id, None
            yield number, output


def split_ids(pairs: Pairs, *, key: str, samples: int) -> Pairs:
    """Take the ids out of samples or batches, from a key of a dict or a last field: the last stage with ``id_key``."""
    for _, sample in pairs:
        if isinstance(sample, dict) and key in sample:
            value: Any = sample[key]
            rest: Any = {name: field for name, field in sample.items() if name != key}
        elif isinstance(sample, (list, tuple)) and len(sample) > 1:
            value, rest = sample[-1], sample[:-1]
        else:
            raise PrunedataError(
                f"Expected the stages to pass the ids on: under {key!r} of a dict, or as the last field of a tuple, as "
                f"by to_tuple(..., {key!r}). Got a {type(sample).__name__} without them."
            )
        ids = np.asarray(value)
        if ids.dtype.kind not in "iu" or ids.ndim > 1 or not ids.size or ids.min() < 0 or ids.max() >= samples:
            raise PrunedataError(
                f"Expected the ids of samples, from 0 to {samples - 1}, under {key!r} or as the last field. "
                f"Got {value!r}."
            )
        yield int(ids) if not ids.ndim else ids.astype(np.int64), rest


def collate_with_ids(collate: Callable[[Any], Any] | None, pairs: list[tuple[int, Any]]) -> tuple[Any, Any]:
    """Return the ids of a batch of pairs, shape (n,), and the collated samples, for WebDataset's own ``batched``."""
    samples = [sample for _, sample in pairs]
    ids = np.array([number for number, _ in pairs], dtype=np.int64)
    return ids, samples if collate is None else collate(samples)
