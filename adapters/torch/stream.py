"""A pruned stream as PyTorch's IterableDataset."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from prunedata.adapters.iterable import Stream

__all__ = ["TorchStream"]


class TorchStream(Stream, IterableDataset[Any]):
    """A ``prunedata.adapters.iterable.Stream`` that a DataLoader accepts.

    The raw iterable splits its samples between ranks and their workers; of one that has places, as a list, each reads
    a share.
    """

    place = (0, 1)
    """Which rank iterates it, of how many: said by the loader, as workers cannot ask."""

    def _reader(self) -> int:
        worker = get_worker_info()
        return 0 if worker is None else worker.id

    def _items(self) -> Iterable[Any]:
        raw, worker = self.raw, get_worker_info()
        has_places = hasattr(raw, "__getitem__") and hasattr(raw, "__len__") and not isinstance(raw, IterableDataset)
        (rank, world), (number, workers) = self.place, (worker.id, worker.num_workers) if worker else (0, 1)
        if not has_places or world * workers == 1:
            return raw
        # A list, an array or a map-style dataset knows nothing of ranks and workers: each would give all of it.
        return islice(raw, rank * workers + number, None, world * workers)
