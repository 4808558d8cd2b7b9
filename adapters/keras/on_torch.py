"""Record losses on the torch backend, where each step is Python: the losses go straight to the pruner."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from prunedata.adapters.keras.recorders import StepRecorder, weights_in
from prunedata.adapters.torch.losses import Block, Recorder
from prunedata.run.pruner import Pruner


class TorchRecorder(StepRecorder):
    """Hands the losses of a step over at once."""

    def __init__(self, pruner: Pruner) -> None:
        super().__init__(pruner)
        self._losses = Recorder(pruner)

    def held_back(self) -> Iterator[Block]:
        """Hand over the losses that are on a device."""
        return self._losses.held_back()

    def forget(self) -> None:
        """Drop them."""
        self._losses.forget()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def weights_of(self, ids: Any) -> Any:
        """Return what the losses of a batch weigh."""
        epoch = self._epoch
        if epoch is None or not epoch.is_weighed:
            return None
        return tuple(torch.from_numpy(each).to(ids.device) for each in weights_in(epoch, ids.cpu().numpy()))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def add(
        self, ids: Any, losses: Any, logits: Any = None, labels: Any = None, *, sizes: Sequence[int] | None = None
    ) -> None:
        """Observe a batch, or several."""
        self._handed_over += len(ids)
        places = ids.cpu().numpy()
        if labels is not None and self._takes_labels and self._pruner.wants_labels:
            self._see_labels(places, labels.cpu().numpy())
        self._losses.add(places, losses, logits, sizes)

    @staticmethod
    def joined(parts: Sequence[Any]) -> Any:
        """Return the tensors of several batches as one."""
        return torch.cat(list(parts))
