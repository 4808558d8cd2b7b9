"""What a Trainer trains before the run, and puts back: a ``fast_dev_run``, and the steps of Lightning's tuners."""

from typing import Any

from prunedata.run.pruner import Pruner

__all__ = ["Trial"]


class Trial:
    """Passes over the next epoch that leave no trace in the pruner. There may be any number of them."""

    def __init__(self, pruner: Pruner) -> None:
        self._pruner = pruner
        self._before: dict[str, Any] | None = None
        """Where the pruner stood when the trial began."""

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
