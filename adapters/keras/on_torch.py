"""Record losses on the torch backend, where each step is Python: the losses go straight to the pruner."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from prunedata.adapters.keras.recorders import weights_in
from prunedata.adapters.torch.losses import Block, Recorder, finite
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
        self._losses.passes_nan = True
        self._epoch: Epoch | None = None

    def begin_epoch(self, epoch: Epoch) -> None:
        """Begin an epoch, or go on with it."""
        self.count, self._epoch = 0, epoch

    def held_back(self) -> Iterator[Block]:
        """Hand over the losses that are on a device."""
        return self._losses.held_back()

    def forget(self) -> None:
        """Drop them."""
        self._losses.forget()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def weights_of(self, ids: Any) -> Any:
        """Return the weights of a batch's losses and which samples count, shape (n,) each; None if all are equal."""
        epoch = self._epoch
        if epoch is None or not epoch.is_weighed:
            return None
        return tuple(torch.from_numpy(each).to(ids.device) for each in weights_in(epoch, ids.cpu().numpy()))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def add(self, ids: Any, losses: Any, logits: Any = None) -> None:
        """Observe a batch."""
        self.count += len(ids)
        self._losses.add(ids.cpu().numpy(), losses, logits)

    def add_many(self, ids: Any, losses: Any, logits: Any, sizes: Sequence[int]) -> None:
        """Observe batches of so many samples each; where a loss is no number, with the mean of its batch."""
        self.count += len(ids)
        self._losses.add(ids.cpu().numpy(), finite(losses, sizes), logits, sizes)

    @staticmethod
    def joined(parts: Sequence[Any]) -> Any:
        """Return the tensors of several batches as one."""
        return torch.cat(list(parts))
