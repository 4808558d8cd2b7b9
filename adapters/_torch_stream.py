"""A stream that a DataLoader takes: the same one, as an IterableDataset."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from prunedata.adapters.iterable import Stream

__all__ = ["TorchStream"]


class TorchStream(Stream, IterableDataset[Any]):
    """A :class:`Stream` that a DataLoader accepts. The raw iterable splits its samples between workers."""

    def _items(self) -> Iterable[Any]:
        worker = get_worker_info()
        if worker is None or not isinstance(self.raw, Sequence):
            return self.raw
        # A list knows nothing of workers: each would give all of it.
        return islice(self.raw, worker.id, None, worker.num_workers)
