"""Write scalars and histograms of each epoch of a run to TensorBoard."""

from __future__ import annotations

from typing import Any

import numpy as np

from prunedata.adapters.logging.epochs import Histogram, log_epochs
from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner

__all__ = ["log"]

NEEDED = ("add_scalar", "add_histogram_raw")


def log(pruner: Pruner, writer: Any) -> None:
    """Write each epoch of a run to TensorBoard as it ends, under ``prunedata/``; its step is the epoch's number.

    Parameters
    ----------
    pruner : Pruner
    writer : torch.utils.tensorboard.SummaryWriter
        Or an object with its methods, such as that of tensorboardX. It is not closed.

    Raises
    ------
    PrunedataError
        If an argument is something else.
    """
    if not all(callable(getattr(writer, name, None)) for name in NEEDED):
        raise PrunedataError(
            f"Expected a SummaryWriter, of torch.utils.tensorboard or tensorboardX. Got {type(writer).__name__}."
        )

    def write(epoch: int, scalars: dict[str, float], histograms: dict[str, Histogram]) -> None:
        for name, value in scalars.items():
            writer.add_scalar(f"prunedata/{name}", value, epoch)
        for name, histogram in histograms.items():
            writer.add_histogram_raw(f"prunedata/{name}", **_raw(histogram), global_step=epoch)

    log_epochs(pruner, writer, write)


def _raw(histogram: Histogram) -> dict[str, Any]:
    """Return a histogram as the arguments of ``add_histogram_raw``."""
    numbers, edges = histogram
    middles = (edges[:-1] + edges[1:]) / 2
    return {
        "min": float(edges[0]),
        "max": float(edges[-1]),
        "num": int(numbers.sum()),
        "sum": float(numbers @ middles),
        "sum_squares": float(numbers @ np.square(middles)),
        "bucket_limits": edges[1:].tolist(),
        "bucket_counts": numbers.tolist(),
    }
