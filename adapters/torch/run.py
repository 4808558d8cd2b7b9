"""PyTorch's part in a run: one adapter, which all loaders that were wrapped for the run share."""

import numpy as np

from prunedata.adapters.torch.losses import Recorder
from prunedata.errors import LossError, SkippedSamples
from prunedata.run.adapter import Adapter
from prunedata.run.counts import Tally
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.types import Weights

__all__ = ["TorchRun"]


class TorchRun(Adapter):
    """Holds the losses that are on a device, and says what the loader that was iterated last has delivered.

    Attributes
    ----------
    recorder : Recorder
    weights : ndarray of float32, shape (samples,), or None
        The epoch's.
    delivery : Delivery or None
        Of the loader that began last.
    """

    key = "torch"

    def __init__(self, pruner: Pruner) -> None:
        self.recorder = Recorder(pruner)
        self.weights: Weights | None = None
        self._begun: int | None = None
        self.begins = 0
        """How often an epoch was begun or gone on with: a loader's pass is of one of these."""

    def begin_epoch(self, epoch: Epoch) -> None:
        """Forget what was delivered: the loader begins anew."""
        self.weights, self.begins = epoch.weights, self.begins + 1
        self._begun, self.delivery = epoch.number, None

    def hand_over(self) -> None:
        """Observe the losses that are on a device."""
        self.recorder.hand_over()

    def forget(self) -> None:
        """Drop them."""
        self.recorder.forget()
        self._begun, self.delivery = None, None

    def end_epoch(self, epoch: Epoch, tally: Tally) -> None:
        """Raise if no pruned loader was iterated, and what was observed shows that another one was."""
        if self.delivery is not None or self._begun != epoch.number:
            return
        told = (
            f"Expected the loader that prune() returned to be iterated in epoch {epoch.number}. Got nothing from it: "
            "is the loader that was given to prune() iterated instead?"
        )
        if not tally.observed:
            raise SkippedSamples(told)
        pruned = int(np.count_nonzero(tally.visits[~epoch.keep]))
        if pruned:
            raise LossError(f"{told} {pruned} pruned samples were observed.")
