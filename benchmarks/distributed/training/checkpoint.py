"""A checkpoint: weights, the optimiser's average and the run in one file, so that none of them is ever older."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.distributed.training.replica import Vector

__all__ = ["Checkpoint"]


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands.

    Attributes
    ----------
    weights, average : ndarray of float32, shape (n,)
        The weights, and the optimiser's average of squared gradients.
    run : dict
        Of the pruner, or of the dealer.
    buffers : list of Tensor
        Batch norm's.
    """

    weights: Vector
    average: Vector
    run: dict[str, Any]
    buffers: list[Any]

    def save(self, file: Path) -> None:
        """Write it whole: whoever is killed meanwhile leaves the one before."""
        part = file.with_suffix(".part")
        with part.open("wb") as out:
            torch.save(
                {
                    "weights": torch.from_numpy(self.weights),
                    "average": torch.from_numpy(self.average),
                    "run": self.run,
                    "buffers": self.buffers,
                },
                out,
            )
            out.flush()
            os.fsync(out.fileno())
        part.replace(file)

    @classmethod
    def load(cls, file: Path) -> "Checkpoint | None":
        """Read what :meth:`save` wrote; None if there is nothing yet."""
        if not file.exists():
            return None
        held = torch.load(file, weights_only=True)
        return cls(held["weights"].numpy(), held["average"].numpy(), held["run"], held["buffers"])
