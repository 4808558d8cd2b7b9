"""The steps of a whole run, where Lightning takes all epochs to be as long as the first."""

from functools import cache
from typing import Any

from prunedata.adapters.torch.loader import PrunedLoader

__all__ = ["counting"]


@cache
def counting(kind: type) -> type:
    """Return a subclass of a Trainer's class whose ``estimated_stepping_batches`` is right for pruned loaders.

    Schedulers are built from that property, and there is no hook around it.
    """
    return type(kind.__name__, (_Counting, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})


class _Counting:
    fit_loop: Any
    train_dataloader: Any
    fast_dev_run: Any
    accumulate_grad_batches: int
    callbacks: Any

    @property
    def estimated_stepping_batches(self) -> int | float:
        """How often the optimizer steps in the whole run."""
        if self.train_dataloader is None:
            self.fit_loop.setup_data()  # as Lightning does
        loader = self.train_dataloader
        if self.fast_dev_run or not isinstance(loader, PrunedLoader):
            steps: int | float = super().estimated_stepping_batches  # type: ignore[misc]
            return steps
        return sum(-(-batches // self._accumulated_in(epoch)) for epoch, batches in enumerate(loader.lengths()))

    def _accumulated_in(self, epoch: int) -> int:
        """How many batches make a step in an epoch: a GradientAccumulationScheduler changes that as it begins."""
        for callback in self.callbacks:
            if hasattr(callback, "get_accumulate_grad_batches"):
                return int(callback.get_accumulate_grad_batches(epoch))
        return self.accumulate_grad_batches
