"""Record losses on the torch backend, where each step is Python: the losses go straight to the pruner."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from keras.src.backend import get_keras_mask

from prunedata.adapters.keras.recorders import weights_in
from prunedata.adapters.torch.losses import SMALL, Block, Later, Recorder
from prunedata.run.adapter import Adapter
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner

__all__ = ["TorchRecorder", "Waiting"]


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
    def add(self, ids: Any, losses: Any, logits: Any = None, sizes: Any = None) -> None:
        """Observe a batch, or several, of ``sizes`` samples each."""
        self.count += len(ids)
        self._losses.add(ids if isinstance(ids, np.ndarray) else ids.cpu().numpy(), losses, logits, sizes)


class Waiting:
    """Lets the losses of many batches be computed together, as a training step has no need of them."""

    def __init__(self, recorder: TorchRecorder, losses_of: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        self._later, self._losses_of = Later(recorder.add), losses_of

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def add(self, ids: Any, y: Any, y_pred: Any) -> bool:
        """Let a batch wait, of which ``losses_of(y, y_pred)`` returns losses and logits; False if it is too large."""
        parts = (y, y_pred)
        if not all(isinstance(part, torch.Tensor) and part.ndim and part.numel() <= SMALL for part in parts):
            return False
        if get_keras_mask(y_pred) is not None:
            return False
        self._later.add(ids.cpu().numpy(), tuple([part.detach().clone() for part in parts]), self._losses_of)
        return True

    def flush(self) -> None:
        """Record the batches that wait."""
        self._later.flush()
