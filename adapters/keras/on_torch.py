"""What a model records on the torch backend, where each step is Python: the losses go straight to the pruner."""

from collections.abc import Iterator
from typing import Any

import torch

from prunedata.adapters.torch.losses import Recorder
from prunedata.policies.protocol import Weigher
from prunedata.run.adapter import Adapter
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner

__all__ = ["TorchRecorder"]


class TorchRecorder(Adapter):
    """The same as ``on_tensorflow.GraphRecorder``, for torch."""

    key = "keras"
    by_weight = True

    def __init__(self, pruner: Pruner) -> None:
        self.waiting: Any = None
        self.count = 0
        self._losses = Recorder(pruner)
        self._weighs = isinstance(pruner.policy, Weigher) or pruner.by == "weight"
        self._epoch: Epoch | None = None

    def begin_epoch(self, epoch: Epoch) -> None:
        """Begin an epoch, or go on with it."""
        self.count, self._epoch = 0, epoch

    def held_back(self) -> Iterator[tuple[Any, Any]]:
        """Hand over the losses that are on a device."""
        return self._losses.held_back()

    def forget(self) -> None:
        """Drop them."""
        self._losses.forget()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def weights_of(self, ids: Any) -> Any:
        """What to multiply the losses of a batch by, shape (n,), or None if all count alike in every epoch."""
        if not self._weighs or self._epoch is None:
            return None
        return torch.from_numpy(self._epoch.factors(ids.cpu().numpy())).to(ids.device)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def add(self, ids: Any, losses: Any) -> None:
        """Observe a batch."""
        self.count += len(ids)
        self._losses.add(ids.cpu().numpy(), losses)
