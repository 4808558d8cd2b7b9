"""The validation that follows a batch, where a checkpoint was saved between the two: Lightning leaves it out."""

from typing import Any

__all__ = ["is_validation_due", "validate_for"]


def is_validation_due(trainer: Any) -> bool:
    """Whether Lightning validates next, after a batch."""
    loop = trainer.fit_loop
    return bool(loop.epoch_loop._should_check_val_fx(loop._data_fetcher))


def validate_for(trainer: Any, epoch: int) -> None:
    """Validate for an epoch before ``fit`` goes on, by its number, also where Lightning takes it to be over."""
    loop, current = trainer.fit_loop.epoch_loop.val_loop, trainer.fit_loop.epoch_progress.current
    loop.restarting, stands_at = False, current.completed
    current.completed, trainer.validating = epoch, True
    try:
        loop.run()
    finally:
        current.completed, trainer.training = stands_at, True
