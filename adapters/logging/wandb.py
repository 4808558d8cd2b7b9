"""A run in Weights & Biases, live: scalars and histograms of each epoch."""

from __future__ import annotations

from typing import Any

from prunedata.adapters.logging.epochs import Histogram, log_epochs
from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner

try:
    import wandb
except ImportError as error:
    raise ImportError("Expected wandb to be installed. Got none: pip install wandb.") from error

__all__ = ["log"]


def log(pruner: Pruner, run: Any) -> None:
    """Log each epoch of a run to Weights & Biases as it ends, under ``prunedata/``.

    What you log yourself keeps its own steps: these are drawn over ``prunedata/epoch``.

    Parameters
    ----------
    pruner : Pruner
    run : wandb.Run
        As ``wandb.init`` returns it. It is not finished.

    Raises
    ------
    PrunedataError
        If they are something else.
    """
    if not isinstance(run, wandb.Run):
        raise PrunedataError(f"Expected a run as wandb.init() returns it. Got {type(run).__name__}.")
    run.define_metric("prunedata/epoch")
    run.define_metric("prunedata/*", step_metric="prunedata/epoch")

    def write(epoch: int, scalars: dict[str, float], histograms: dict[str, Histogram]) -> None:
        bars = {name: wandb.Histogram(np_histogram=histogram) for name, histogram in histograms.items()}
        run.log({"prunedata/epoch": epoch, **{f"prunedata/{name}": one for name, one in (scalars | bars).items()}})

    log_epochs(pruner, run, write)
