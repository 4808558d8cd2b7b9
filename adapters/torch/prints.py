"""Fingerprints of a dataset's samples, read as the user's loader reads them; and its own fingerprint."""

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from prunedata.adapters.torch.items import Indexed
from prunedata.adapters.torch.seeds import drawing_alike
from prunedata.run.frameworks import names_in
from prunedata.run.identity import Prints, print_of, prints_by
from prunedata.run.pruner import Pruner
from prunedata.run.rows import original_rows

SOME = 8
"""Samples of which data are compared in one process, or in those that train together."""
LONGEST = 60.0  # seconds that a worker may take for a sample. If it takes longer, there is no fingerprint.


class _Printed(Indexed):
    """A dataset whose items are the fingerprints of its samples."""

    def __getitem__(self, index: Any) -> Any:
        return print_of(self._indexed.__getitem__, index, drawing_alike)


def trains_on(
    pruner: Pruner,
    dataset: Dataset[Any],
    workers: int,
    loader: DataLoader[Any] | None = None,
    row_of: Callable[[Any], Any] | None = None,
) -> None:
    """Let a run notice if it goes on with another map-style dataset, or other rows of one: raise :class:`OtherData`.

    If the user's loader has workers, a worker reads the samples, started as ``loader`` says. A file that a dataset
    opens when it is first read must not be opened in this process: workers that are forked later would share its
    position. ``row_of`` returns the places of ids in the dataset, if these are others: in a packed one.
    """
    prints = prints_in(dataset, workers, loader)
    if row_of is None:
        whole, rows = partial(_whole_print, dataset), partial(original_rows, dataset)
        pruner.trains_on(prints, lambda: names_in(dataset), whole, rows)
    else:
        pruner.trains_on(lambda ids: prints(row_of(ids).tolist()), whole=lambda: _whole_print(dataset))


def prints_in(dataset: Dataset[Any], workers: int, loader: DataLoader[Any] | None) -> Prints:
    """Return a function that computes the fingerprints of a dataset's samples."""
    if not workers:
        return prints_by(dataset.__getitem__, drawing_alike)

    def prints(ids: Sequence[int]) -> list[str | None]:
        # With a generator of its own, so that the user's loader draws what it would have drawn.
        options: dict[str, Any] = {"num_workers": 1, "timeout": LONGEST, "generator": torch.Generator()}
        if loader is not None:
            options |= {
                "multiprocessing_context": loader.multiprocessing_context, "worker_init_fn": loader.worker_init_fn,
            }  # fmt: skip
        return list(DataLoader(_Printed(dataset), sampler=ids, batch_size=None, **options))

    return prints


def some_in(dataset: Any) -> list[int]:
    """Return the ids of some samples, spread over a dataset."""
    return [int(place) for place in np.linspace(0, len(dataset) - 1, SOME)]


def _whole_print(dataset: Any) -> str | None:
    """Return a fingerprint of a Hugging Face ``Dataset``: its own, with the files and the order of its rows.

    Its own covers the functions of ``map``, ``filter`` and ``from_generator``, but not the files that these read. None
    for any other dataset, and where rows may be others all the same: they lie in memory, are made by a transform
    whenever they are read, or name files, as those of images, that are opened then.
    """
    datasets = sys.modules.get("datasets")
    if datasets is None or not isinstance(dataset, datasets.Dataset):
        return None
    digest = blake2b(digest_size=8)
    try:
        opened = map(datasets.features.features.require_decoding, dataset.features.values())
        parts = [part for parts in getattr(dataset.data, "blocks", [[dataset.data]]) for part in parts]
        if any(opened) or dataset.format["type"] == "custom" or not all(hasattr(part, "path") for part in parts):
            return None
        digest.update(dataset._fingerprint.encode())
        for part in parts:
            found = os.stat(part.path)
            file = f" {part.path} {found.st_ino} {found.st_size} {found.st_mtime_ns}"
            digest.update(file.encode("utf-8", "surrogatepass"))
        if dataset._indices is not None:
            digest.update(np.ascontiguousarray(dataset._indices.column(0)).data)
    except (AttributeError, OSError):  # of a release that has these otherwise; of a file that was removed
        return None
    return digest.hexdigest()
