"""A pruned stream as PyTorch's IterableDataset."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from prunedata.adapters.iterable import Stream

__all__ = ["TorchStream"]


class TorchStream(Stream, IterableDataset[Any]):
    """A ``prunedata.adapters.iterable.Stream`` that a DataLoader accepts.

    The raw iterable splits its samples between workers; of one that has places, as a list, each worker reads a share.
    """

    def _reader(self) -> int:
        worker = get_worker_info()
        return 0 if worker is None else worker.id

    def _items(self) -> Iterable[Any]:
        worker = get_worker_info()
        raw = self.raw
        has_places = hasattr(raw, "__getitem__") and hasattr(raw, "__len__") and not isinstance(raw, IterableDataset)
        if worker is None or not has_places:
            return raw
        # A list, an array or a map-style dataset knows nothing of workers: each would give all of it.
        return islice(raw, worker.id, None, worker.num_workers)
