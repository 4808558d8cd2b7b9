"""Find the rows of the user's own data set that the samples of a training come from."""

from typing import Any

import numpy as np

from prunedata.types import Ids

__all__ = ["original_rows"]


def original_rows(dataset: Any) -> Ids | None:
    """Return the row of each sample in the data set that the user selected from, shape (samples,).

    None if nothing was selected: by PyTorch's ``Subset``, or by ``select``, ``shuffle``, ``filter`` and
    ``train_test_split`` of Hugging Face's. What ``map`` writes anew is a data set of its own.
    """
    rows: Ids | None = None
    while True:
        indices, inner = getattr(dataset, "indices", None), getattr(dataset, "dataset", None)
        if indices is not None and hasattr(inner, "__getitem__"):
            dataset = inner
        elif getattr(dataset, "_indices", None) is not None and hasattr(dataset, "column_names"):
            indices, dataset = dataset._indices.column(0).to_numpy(), None
        else:
            return rows
        here = np.asarray(indices, dtype=np.int64)
        rows = here if rows is None else here[rows]
