"""The learning rate where the number of steps changes during the run, as with ``policy="auto"``."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from prunedata.errors import PrunedataError

__all__ = ["Change", "stretch"]


class Change(NamedTuple):
    """At step ``at`` the number of steps of the run changed from ``old`` to ``new``."""

    at: int
    old: int
    new: int


def stretch(scheduler: Any, change: Change) -> None:
    """Stretch the rest of a scheduler over the remaining steps, in place.

    Raises
    ------
    PrunedataError
        If the scheduler cannot be stretched.
    """
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
