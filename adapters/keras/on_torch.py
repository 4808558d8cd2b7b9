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

    def __init__(self, pruner: Pruner) -> None:
        self.waiting: Any = None
        self.count = 0
        self._losses = Recorder(pruner)
        self._weights = torch.ones(pruner.samples) if isinstance(pruner.policy, Weigher) else None

    def begin_epoch(self, epoch: Epoch) -> None:
        """Begin an epoch, or go on with it."""
        self.count = 0
        if self._weights is not None:
            weights = None if epoch.weights is None else torch.tensor(epoch.weights)
            self._weights = torch.ones_like(self._weights) if weights is None else weights

    def held_back(self) -> Iterator[tuple[Any, Any]]:
        """Hand over the losses that are on a device."""
        return self._losses.held_back()

    def forget(self) -> None:
        """Drop them."""
        self._losses.forget()

    def weights_of(self, ids: Any) -> Any:
        """What the losses of samples weigh, shape (n,), or None if the policy does not weigh."""
        return None if self._weights is None else self._weights.to(ids.device)[ids]

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def add(self, ids: Any, losses: Any) -> None:
        """Observe a batch."""
        self.count += len(ids)
        self._losses.add(ids.cpu().numpy(), losses)
