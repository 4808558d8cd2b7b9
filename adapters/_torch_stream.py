"""A stream in a DataLoader: the stream as an IterableDataset, and what of the loader its pruning replaces."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from prunedata.adapters._torch_items import CollatePairs
from prunedata.adapters._torch_samplers import Walk
from prunedata.adapters.iterable import Stream
from prunedata.errors import PrunedataError
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner

__all__ = ["StreamWalk", "TorchStream", "stream_parts"]


class TorchStream(Stream, IterableDataset[Any]):
    """A :class:`Stream` that a DataLoader accepts. The raw iterable splits its samples between workers."""

    def _items(self) -> Iterable[Any]:
        worker = get_worker_info()
        raw = self.raw
        has_places = hasattr(raw, "__getitem__") and hasattr(raw, "__len__") and not isinstance(raw, IterableDataset)
        if worker is None or not has_places:
            return raw
        # A list, an array or a map-style dataset knows nothing of workers: each would give all of it.
        return islice(raw, worker.id, None, worker.num_workers)


class StreamWalk(Walk):
    """A pruned stream, which chooses its samples itself, wherever its workers are."""

    resumable = False

    def __init__(self, loader: DataLoader[Any], pruner: Pruner) -> None:
        super().__init__(pruner, None, loader.batch_size or 1, loader.drop_last)
        self.workers = max(1, loader.num_workers)

    def begin(self, epoch: Epoch, *, whole: bool = False) -> None:
        super().begin(epoch, whole=whole)
        self.most = int(np.count_nonzero(self.remaining))

    def _left_out(self) -> int:
        """Known only at the end."""
        return 0

    def finish(self, delivered: int) -> None:
        """Excuse what drop_last can have cut: the tail of each worker's share, of a length that only it knows."""
        if self.drop_last:
            missing = int(np.count_nonzero(self.remaining)) - delivered
            self._excuse(max(0, min(missing, self.workers * (self.batch_size - 1))))

    def batches(self) -> int:
        raise TypeError("A stream has no length: how its batches are cut depends on how its workers share it.")


def stream_parts(loader: DataLoader[Any], pruner: Pruner) -> tuple[Walk, dict[str, Any]]:
    """The walk over a pruned stream, and what of its loader is replaced."""
    if not getattr(loader.dataset, "delivers_ids", False):
        raise PrunedataError(
            f"Expected a map-style dataset, or a stream that was pruned by its own adapter. Got the IterableDataset "
            f"{type(loader.dataset).__name__}: wrap it by prunedata.adapters.iterable.prune or "
            "prunedata.adapters.webdataset.prune first."
        )
    return StreamWalk(loader, pruner), {"collate_fn": CollatePairs(loader.collate_fn, loader.batch_size is not None)}
