"""By what samples are known: fingerprints, read where the user's loader reads them; and names that a dataset has."""

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
"""Seconds that a worker may take for a sample. Of one that takes longer nothing is known."""


class _Printed(Indexed):
    """A dataset whose items are the fingerprints of its samples."""

    def __getitem__(self, index: Any) -> Any:
        return print_of(self.dataset.__getitem__, index, drawing_alike)


def prints_in(dataset: Dataset[Any], workers: int, loader: DataLoader[Any] | None = None) -> Prints:
    """Return what gives the fingerprints of a map-style dataset's samples.

    With workers a worker reads them, as the user's do. A file that a dataset opens when it is first read must not be
    opened in this process: workers that are forked later would share its position.

    Parameters
    ----------
    dataset : Dataset
    workers : int
        Of the user's loader.
    loader : DataLoader, optional
        The user's, for how its workers are started.
    """
    if not workers:
        return prints_by(dataset.__getitem__, drawing_alike)

    def prints(ids: Sequence[int]) -> list[str | None]:
        started = {} if loader is None else {
            "multiprocessing_context": loader.multiprocessing_context, "worker_init_fn": loader.worker_init_fn,
        }  # fmt: skip
        # Of its own generator: that of the user's loader must draw what it would have drawn.
        own = torch.Generator()
        return list(
            DataLoader(
                _Printed(dataset),
                sampler=ids,
                batch_size=None,
                num_workers=1,
                generator=own,
                timeout=LONGEST,
                **started,
            )
        )

    return prints


def names_in(dataset: Any) -> list[str] | None:
    """Return the names that a dataset has for its samples, so that it need not be read: files, below its root.

    Parameters
    ----------
    dataset : Dataset
        One with a list ``samples`` of pairs of a file and its class, as torchvision's folders; or a ``Subset`` of one.

    Returns
    -------
    list of str, or None
        In the order of the dataset. None of any other.
    """
    if isinstance(dataset, Subset):
        names = names_in(dataset.dataset)
        return None if names is None else [names[at] for at in np.asarray(dataset.indices).tolist()]
    samples, root = getattr(dataset, "samples", None), getattr(dataset, "root", None)
    if not isinstance(samples, list) or len(samples) != len(dataset):
        return None
    if not all(isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str) for one in samples):
        return None
    before = os.path.join(root, "") if isinstance(root, str) else ""  # a folder may move
    return [one[0].removeprefix(before) for one in samples]
