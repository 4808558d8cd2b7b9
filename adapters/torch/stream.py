"""A pruned stream that is an IterableDataset of PyTorch's."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from prunedata.adapters.iterable import Stream


class TorchStream(Stream, IterableDataset[Any]):
    """A ``prunedata.adapters.iterable.Stream`` that a DataLoader accepts.

    The raw iterable must split its samples between workers, and between ranks unless wrap() deals them. A list, an
    array or a map-style dataset is split between workers here; each rank iterates all of it, and the kept samples are
    dealt to the ranks.
    """

    def _reader(self) -> int:
        worker = get_worker_info()
        return 0 if worker is None else worker.id

    def _has_places(self) -> bool:
        """Return whether the raw samples are a list, an array or a map-style dataset, which splits nothing itself."""
        raw = self.raw
        return hasattr(raw, "__getitem__") and hasattr(raw, "__len__") and not isinstance(raw, IterableDataset)

    def _deals(self) -> bool:
        return super()._deals() or self._has_places()

    def _items(self) -> Iterable[Any]:
        worker = get_worker_info()
        if worker is None or not self._has_places():
            return self.raw
        return islice(self.raw, worker.id, None, worker.num_workers)
