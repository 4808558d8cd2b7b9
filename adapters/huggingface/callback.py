"""The callback that is called before all others, so that they see how far the epoch really is."""

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

__all__ = ["ExactEpochs"]


class ExactEpochs(TrainerCallback):
    """Sets ``state.epoch``, which the Trainer takes for that of a whole epoch in one that was resumed in its middle.

    Parameters
    ----------
    epoch_now : callable
        Returns how many epochs are done, with the part of the open one.
    """

    def __init__(self, epoch_now: Callable[[], float]) -> None:
        self._epoch_now = epoch_now

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Say how far it is."""
        state.epoch = self._epoch_now()
