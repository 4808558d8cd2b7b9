"""Callbacks of the Trainer: how far an epoch is, and the validation figure for the pruner."""

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from prunedata.run.pruner import Pruner

__all__ = ["ExactEpochs", "HandOver"]


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


class HandOver(TrainerCallback):
    """Hands over ``metric_for_best_model`` of the evaluation at the end of each epoch.

    Evaluations within an epoch are passed over: a run goes by one figure an epoch.
    """

    def __init__(self, pruner: Pruner) -> None:
        self._pruner = pruner

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **others: Any) -> None:
        """Pass the figure to the pruner. It is the same on all ranks, because the Trainer gathers the evaluation."""
        name = args.metric_for_best_model
        if name is None or self._pruner.holdout is not None or not state.epoch or not float(state.epoch).is_integer():
            return
        figure = (metrics or {}).get(name if name.startswith("eval_") else f"eval_{name}")
        if figure is not None and not self._pruner.is_validated:
            self._pruner.validated(figure, lower_is_better=args.greater_is_better is False, agreed=True)
