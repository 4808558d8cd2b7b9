"""Fingerprints of a dataset's samples, read as the user's loader reads them; and the names that it has for them."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset

from prunedata.adapters.torch.items import Indexed
from prunedata.adapters.torch.seeds import drawing_alike
from prunedata.run.identity import Prints, print_of, prints_by

__all__ = ["names_in", "prints_in"]

LONGEST = 60.0
"""Seconds that a worker may take for a sample. If it takes longer, there is no fingerprint."""


class _Printed(Indexed):
    """A dataset whose items are the fingerprints of its samples."""

    def __getitem__(self, index: Any) -> Any:
        return print_of(self.dataset.__getitem__, index, drawing_alike)


def prints_in(dataset: Dataset[Any], workers: int, loader: DataLoader[Any] | None = None) -> Prints:
    """Return a function that computes the fingerprints of a map-style dataset's samples.

    If the user's loader has workers, a worker reads the samples. A file that a dataset opens when it is first read
    must not be opened in this process: workers that are forked later would share its position.

    Parameters
    ----------
    dataset : Dataset
    workers : int
        Number of workers of the user's loader.
    loader : DataLoader, optional
        The user's loader, which says how its workers are started.
    """
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


def names_in(dataset: Any) -> list[str] | None:
    """Return the names that a dataset has for its samples, without reading them: files, relative to its root.

    Parameters
    ----------
    dataset : Dataset
        One with a list ``samples`` of pairs of a file and its class, as torchvision's folders; or a ``Subset`` of one.

    Returns
    -------
    list of str, or None
        In the order of the dataset. None for any other dataset.
    """
    if isinstance(dataset, Subset):
        names = names_in(dataset.dataset)
        return None if names is None else [names[at] for at in np.asarray(dataset.indices).tolist()]
    samples, root = getattr(dataset, "samples", None), getattr(dataset, "root", None)
    if not isinstance(samples, list) or len(samples) != len(dataset):
        return None
    if not all(isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) for each in samples):
        return None
    prefix = os.path.join(root, "") if isinstance(root, str) else ""  # the folder may move
    return [file.removeprefix(prefix) for file, _ in samples]
