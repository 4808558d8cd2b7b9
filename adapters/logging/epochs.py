"""The figures of a finished epoch for loggers: scalars, and histograms of counts and visits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.errors import PrunedataError
from prunedata.run.adapter import Adapter
from prunedata.run.pruner import Pruner
from prunedata.types import Array, Floats

Histogram = tuple[npt.NDArray[np.int64], Floats]
"""The number of samples in each bin, shape (n,), and the edges of the bins, shape (n + 1,)."""
Write = Callable[[int, dict[str, float], dict[str, Histogram]], None]
"""A function of the epoch's number, scalars by name, and histograms by name."""
MOST_BINS = 64


def log_epochs(pruner: Pruner, key: object, write: Write) -> None:
    """Call `write` whenever an epoch has ended. A second call with the same `key` has no effect."""
    if not isinstance(pruner, Pruner):
        raise PrunedataError(f"Expected a Pruner to log. Got {type(pruner).__name__}.")
    pruner.attach(EpochLogger(pruner, ("logging", id(key)), write))


class EpochLogger(Adapter):
    """Passes the figures of each epoch to a function."""

    by_weight = True

    def __init__(self, pruner: Pruner, key: tuple[str, int], write: Write) -> None:
        self.key, self._pruner, self._write = key, pruner, write

    def epoch_ended(self, record: dict[str, Any]) -> None:
        """Write the record's numbers, and the histograms of counts and visits."""
        pruner, saved = self._pruner, self._pruner.saved
        names = ("mean_loss", "kept", "observed", "seconds", "overhead", "agreement", "by_weight")
        scalars = {name: float(record[name]) for name in names if record.get(name) is not None}
        scalars |= {
            "pruned": float(record["pruned"]),
            "visits_saved_percent": float(saved["visits_saved_percent"]),
            "overhead_seconds_in_all": float(saved["overhead_seconds"]),
        }
        if saved["seconds_saved"] is not None:
            scalars["seconds_saved"] = float(saved["seconds_saved"])
        histograms = {"counts": _histogram(pruner.counts), "visits": _histogram(pruner.visits)}
        self._write(int(record["number"]), scalars, histograms)


def _histogram(values: Array) -> Histogram:
    """Return a histogram of whole numbers, in at most 64 bins of equal width."""
    numbers = np.bincount(values)
    step = -(-numbers.size // MOST_BINS)
    firsts = np.arange(0, numbers.size, step)
    return np.add.reduceat(numbers, firsts), np.append(firsts, firsts[-1] + step) - 0.5
