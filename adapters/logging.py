"""Loggers: ``log(pruner, to)`` writes the figures of each finished epoch to TensorBoard or Weights & Biases."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.errors import PrunedataError
from prunedata.run.adapter import Adapter
from prunedata.run.pruner import Pruner
from prunedata.types import Array, Floats

__all__ = ["log"]

Histogram = tuple[npt.NDArray[np.int64], Floats]
"""The number of samples in each bin, shape (n,), and the edges of the bins, shape (n + 1,)."""
Write = Callable[[Any, int, dict[str, float], dict[str, Histogram]], None]
"""A function of where to write, the epoch's number, scalars by name, and histograms by name."""
MOST_BINS = 64


def log(pruner: Pruner, to: Any) -> None:
    """Write each epoch of a run to TensorBoard or Weights & Biases as it ends, under ``prunedata/``.

    A second call with the same ``to`` has no effect.

    Parameters
    ----------
    pruner : Pruner
    to : torch.utils.tensorboard.SummaryWriter or wandb.Run
        A writer, or an object with its methods, such as that of tensorboardX: a value's step is the epoch's number. Or
        the result of ``wandb.init``: your own values keep their steps, and the x-axis of these is ``prunedata/epoch``.
        It is not closed or finished.

    Raises
    ------
    PrunedataError
        If an argument is something else.
    """
    if not isinstance(pruner, Pruner):
        raise PrunedataError(f"Expected a Pruner to log. Got {type(pruner).__name__}.")
    if all(callable(getattr(to, name, None)) for name in ("add_scalar", "add_histogram_raw")):
        pruner.attach(EpochLogger(pruner, to, _to_tensorboard))
    elif all(callable(getattr(to, name, None)) for name in ("define_metric", "log")):  # wandb 0.19 has no wandb.Run
        to.define_metric("prunedata/epoch")
        to.define_metric("prunedata/*", step_metric="prunedata/epoch")
        pruner.attach(EpochLogger(pruner, to, _to_wandb))
    else:
        raise PrunedataError(
            "Expected a SummaryWriter, of torch.utils.tensorboard or tensorboardX, or the run that wandb.init() "
            f"returned. Got {type(to).__name__}."
        )


class EpochLogger(Adapter):
    """Passes the figures of each epoch to a function."""

    by_weight = True

    def __init__(self, pruner: Pruner, to: Any, write: Write) -> None:
        self.key, self._pruner, self._to, self._write = ("logging", id(to)), pruner, to, write

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
        self._write(self._to, int(record["number"]), scalars, histograms)


def _histogram(values: Array) -> Histogram:
    """Return a histogram of whole numbers, in at most 64 bins of equal width."""
    numbers = np.bincount(values)
    step = -(-numbers.size // MOST_BINS)
    firsts = np.arange(0, numbers.size, step)
    return np.add.reduceat(numbers, firsts), np.append(firsts, firsts[-1] + step) - 0.5


def _to_tensorboard(writer: Any, epoch: int, scalars: dict[str, float], histograms: dict[str, Histogram]) -> None:
    for name, value in scalars.items():
        writer.add_scalar(f"prunedata/{name}", value, epoch)
    for name, (numbers, edges) in histograms.items():
        middles = (edges[:-1] + edges[1:]) / 2
        writer.add_histogram_raw(
            f"prunedata/{name}",
            min=float(edges[0]),
            max=float(edges[-1]),
            num=int(numbers.sum()),
            sum=float(numbers @ middles),
            sum_squares=float(numbers @ np.square(middles)),
            bucket_limits=edges[1:].tolist(),
            bucket_counts=numbers.tolist(),
            global_step=epoch,
        )


def _to_wandb(run: Any, epoch: int, scalars: dict[str, float], histograms: dict[str, Histogram]) -> None:
    import wandb  # noqa: PLC0415 (the run is of it)

    bars = {name: wandb.Histogram(np_histogram=histogram) for name, histogram in histograms.items()}
    run.log({"prunedata/epoch": epoch, **{f"prunedata/{name}": value for name, value in (scalars | bars).items()}})
