"""The reference trainer: one network, data and optimiser in the modes ``sync``, ``async``, ``mixed`` and ``local``."""

from pathlib import Path
from typing import Any

from benchmarks.common.data import Data
from benchmarks.distributed.training.in_step import Started, train_in_step
from benchmarks.distributed.training.task import Training

__all__ = ["train"]


def train(task: Training, data: Data, checkpoint: Path | None = None, started: Started | None = None) -> dict[str, Any]:
    """Train, and return the facts of the run: plain values. All but ``sync`` without backups need Ray to run."""
    if not task.served:
        return train_in_step(task, data, checkpoint, started)
    from benchmarks.distributed.training.own_pace import train_at_own_pace  # noqa: PLC0415 (sync needs no Ray)

    return train_at_own_pace(task, data, checkpoint, started)
