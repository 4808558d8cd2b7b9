"""How many optimizer steps the epochs of a run have, and its learning rate where that number changes on the way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from prunedata.errors import PrunedataError


@dataclass(frozen=True)
class Steps:
    """How many batches and optimizer steps each epoch of a run has, in each of its processes.

    A step is made of ``accumulate`` batches; the last one of an epoch may have fewer.
    """

    batches: Sequence[int]
    accumulate: int

    def of(self, epoch: int) -> int:
        """How many optimizer steps the epoch has; 0 for one that the run has not."""
        return -(-self.batches[epoch] // self.accumulate) if epoch < len(self.batches) else 0

    def before(self, epoch: int) -> int:
        """How many optimizer steps all epochs before this one have."""
        return sum(self.of(number) for number in range(epoch))

    @property
    def total(self) -> int:
        """How many optimizer steps the whole run has."""
        return self.before(len(self.batches))


class Change(NamedTuple):
    """At step ``at`` the number of steps of the run changed from ``old`` to ``new``."""

    at: int
    old: int
    new: int


def stretch(scheduler: Any, change: Change) -> None:
    """Stretch the rest of a scheduler over the remaining steps, in place. Raise if it cannot be stretched."""
    if scheduler is None or isinstance(scheduler, ReduceLROnPlateau) or type(scheduler).__name__ == "GreedyLR":
        return  # they go by metrics, not by steps
    if not isinstance(scheduler, LambdaLR):
        raise PrunedataError(
            f"Expected a learning rate scheduler that can be stretched, as the run has {change.new} steps instead of "
            f"{change.old} from step {change.at} on. Got {type(scheduler).__name__}: choose one by lr_scheduler_type, "
            'or a policy other than "auto" and no rewindow().'
        )
    # Partials, as a scheduler saves the attributes of its functions, and a partial has none.
    functions: Any = scheduler.lr_lambdas
    scheduler.lr_lambdas = [partial(_stretched, function, change) for function in functions]


def _stretched(function: Callable[[float], float], change: Change, step: float) -> float:
    if step > change.at:
        step = change.at + (step - change.at) * (change.old - change.at) / max(1, change.new - change.at)
    return function(step)
