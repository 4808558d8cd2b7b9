"""Whether a collate function keeps the order of its samples, tried on a few of them: for ``prunedata doctor``."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, default_collate

__all__ = ["collating"]

TRIED = 7
"""Samples that are collated."""


def collating(loader: DataLoader[Any]) -> tuple[str, str] | None:
    """Say whether the ids of samples stay with them: a state of ``doctor`` and a sentence, or None without batches.

    The same samples are collated in both directions. Where they keep their order, the second batch is the first one
    backwards.
    """
    if loader.batch_sampler is None:
        return None
    try:
        samples = [loader.dataset[place] for place in range(min(TRIED, len(loader.dataset)))]  # type: ignore[arg-type]
        batches = [loader.collate_fn(deepcopy(given)) for given in (samples, samples, samples[::-1])]
    except Exception:
        return "note", "could not be tried"
    if loader.collate_fn is default_collate:  # samples that are all alike would say nothing
        return "ok", "keeps the order of its samples: it is PyTorch's own"
    return _told(*([*_columns(batch, len(samples))] for batch in batches))


def _told(batch: list[Any], again: list[Any], backwards: list[Any]) -> tuple[str, str]:
    """What three batches say: two of the same samples, one of these backwards."""
    way_on = 'give wrap() an id_key="id" and pass the ids on'
    if not len(batch) == len(again) == len(backwards):
        return "note", f"could not be told; if it sorts, drops or replaces samples, {way_on}"
    kept = moved = 0
    for one, same, other in zip(batch, again, backwards, strict=True):
        if not _alike(one, same) or _alike(one, one[::-1]):
            continue  # it draws random numbers, or says nothing
        kept += _alike(one, other[::-1])
        moved += _alike(one, other)
    if moved and not kept:
        return "note", f"sorts or chooses samples, so that losses would be booked on others: {way_on}"
    if kept and not moved:
        return "ok", "keeps the order of its samples, as far as a few of them can show"
    return "note", f"could not be told; if it sorts, drops or replaces samples, {way_on}"


def _columns(batch: Any, size: int) -> Iterator[Any]:
    """Everything in a batch that has one entry for each sample, as arrays or lists."""
    if isinstance(batch, torch.Tensor):
        batch = batch.detach().float().cpu().numpy()
    if isinstance(batch, np.ndarray):
        if batch.ndim and len(batch) == size:
            yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from _columns(value, size)
    elif isinstance(batch, (list, tuple)):
        if len(batch) == size and all(isinstance(one, (str, bytes, int, float)) for one in batch):
            yield list(batch)
        else:
            for value in batch:
                yield from _columns(value, size)


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype != object and np.array_equal(one, other)
    return bool(one == other)
