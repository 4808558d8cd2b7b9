"""Write scalars and histograms of each epoch of a run to Weights & Biases."""

from __future__ import annotations

from typing import Any

from prunedata.adapters.logging.epochs import Histogram, log_epochs
from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner

try:
    import wandb
except ImportError as error:
    raise ImportError("prunedata.adapters.logging.wandb needs wandb: pip install wandb") from error

__all__ = ["log"]


def log(pruner: Pruner, run: Any) -> None:
    """Log each epoch of a run to Weights & Biases as it ends, under ``prunedata/``.

    Your own values keep their steps: the x-axis of the values of this function is ``prunedata/epoch``.

    Parameters
    ----------
    pruner : Pruner
    run : wandb.Run
        The result of ``wandb.init``. It is not finished.

    Raises
    ------
    PrunedataError
        If an argument is something else.
    """
    if not isinstance(run, wandb.Run):
        raise PrunedataError(f"Expected the run that wandb.init() returned. Got {type(run).__name__}.")
    run.define_metric("prunedata/epoch")
    run.define_metric("prunedata/*", step_metric="prunedata/epoch")

    def write(epoch: int, scalars: dict[str, float], histograms: dict[str, Histogram]) -> None:
        bars = {name: wandb.Histogram(np_histogram=histogram) for name, histogram in histograms.items()}
        run.log({"prunedata/epoch": epoch, **{f"prunedata/{name}": value for name, value in (scalars | bars).items()}})

    log_epochs(pruner, run, write)
