"""What Lightning's Trainer has no hooks for: a run's number of steps, a validation left out, passes before a run."""

from functools import cache
from typing import Any

from prunedata.adapters.torch.loader import PrunedLoader
from prunedata.run.pruner import Pruner
from prunedata.types import AnyBase


class Trial:
    """Passes over the next epoch before the run, which leave no trace in it: a ``fast_dev_run``, or a tuner's steps."""

    def __init__(self, pruner: Pruner) -> None:
        self._pruner = pruner
        self._before: dict[str, Any] | None = None  # where the pruner stood when the trial began

    def begin(self) -> None:
        """Open the epoch, if that is not done: a loader is asked for its first batch."""
        if self._before is None:
            self._before = self._pruner.state_dict()
            self._pruner.begin_epoch()

    def end(self) -> None:
        """Put the pruner back to where it stood, if the epoch was opened."""
        before, self._before = self._before, None
        if before is not None:
            self._pruner.load_state_dict(before)


def is_validation_due(trainer: Any) -> bool:
    """Return whether Lightning validates next, after a batch."""
    loop = trainer.fit_loop
    return bool(loop.epoch_loop._should_check_val_fx(loop._data_fetcher))


def validate_for(trainer: Any, epoch: int) -> None:
    """Run the validation that Lightning leaves out where the checkpoint was saved between a batch and its validation.

    The epoch is given by its number, as Lightning may take it to be over.
    """
    loop, current = trainer.fit_loop.epoch_loop.val_loop, trainer.fit_loop.epoch_progress.current
    loop.restarting, stands_at = False, current.completed
    current.completed, trainer.validating = epoch, True
    try:
        loop.run()
    finally:
        current.completed, trainer.training = stands_at, True


@cache
def counting(kind: type) -> type:
    """Return a subclass of a Trainer's class whose ``estimated_stepping_batches`` is right for pruned loaders.

    Schedulers are built from that property. Lightning itself takes all epochs to be as long as the first.
    """
    return type(kind.__name__, (_Counting, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})


class _Counting(AnyBase):  # type: ignore[misc]
    @property
    def estimated_stepping_batches(self) -> int | float:
        """How often the optimizer steps in the whole run."""
        if self.train_dataloader is None:
            self.fit_loop.setup_data()  # as Lightning does
        loader = self.train_dataloader
        if self.fast_dev_run or not isinstance(loader, PrunedLoader):
            return super().estimated_stepping_batches  # type: ignore[no-any-return]
        return sum(-(-batches // self._accumulated_in(epoch)) for epoch, batches in enumerate(loader.lengths()))

    def _accumulated_in(self, epoch: int) -> int:
        """How many batches make a step in an epoch: a GradientAccumulationScheduler changes that as it begins."""
        for callback in self.callbacks:
            if hasattr(callback, "get_accumulate_grad_batches"):
                return int(callback.get_accumulate_grad_batches(epoch))
        return int(self.accumulate_grad_batches)
