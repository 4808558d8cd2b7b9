"""What single samples go through in a run: losses of a few, counts of all.

The losses are those of every epoch.

Nothing here chooses samples, so it works beside every arm, also those that know nothing of pruning.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.study.data import SEED, StudyData

__all__ = ["Trace", "traced_ids"]


def traced_ids(wrong: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """Return ids of ``count`` samples, ascending, the same for every run with these labels.

    Half of them are wrong, where as many are; all samples if there are no more than ``count``.
    """
    rng = np.random.default_rng(SEED)
    bad, good = (rng.permutation(np.flatnonzero(which)) for which in (wrong, ~wrong))
    half = min(len(bad), max(count // 2, count - len(good)))
    return np.sort(np.concatenate((bad[:half], good[: count - half])))


class Trace:
    """Losses of ``count`` samples, one row an epoch, NaN where a sample was not visited; hits and visits of all.

    Parameters
    ----------
    data : StudyData
    epochs, count : int
    device : torch.device
        Of the losses. Nothing is copied from it before the end.
    """

    def __init__(self, data: StudyData, epochs: int, count: int, device: torch.device) -> None:
        if count < 1:
            raise ValueError(f"Expected at least one sample to trace. Got {count}.")
        self.ids = traced_ids(data.wrong, count)
        self._blind = math.log(data.classes)
        self._where = torch.from_numpy(self.ids).to(device)
        self._losses = torch.full((epochs, len(self.ids)), math.nan, device=device)
        self._counts = torch.zeros((3, len(data.train)), dtype=torch.int16, device=device)
        # Of the present epoch, each sample's loss and the same less its batch's mean. A batch costs two copies.
        self._loss = torch.full((len(data.train),), math.nan, device=device)
        self._less = torch.full_like(self._loss, math.nan)

    def add(self, ids: Tensor, losses: Tensor) -> None:
        """Take a batch's losses, shape (n,), of different samples."""
        self._loss.index_copy_(0, ids, losses)
        self._less.index_copy_(0, ids, losses - losses.mean())

    def end_epoch(self, number: int) -> None:
        """Count what the epoch brought."""
        self._losses[number] = self._loss[self._where]
        self._counts[0] += self._less > 0  # NaN is not
        self._counts[1] += self._loss > self._blind
        self._counts[2] += ~self._loss.isnan()
        self._loss.fill_(math.nan)
        self._less.fill_(math.nan)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what to keep: ``trace_ids`` (count,), ``trace_losses`` (epochs, count), and counts of (samples,).

        ``hits`` are visits with a loss above the batch's mean, ``high`` those above a blind guess's.
        """
        hits, high, visits = self._counts.cpu().numpy()
        losses = self._losses.half().cpu().numpy()
        return {"trace_ids": self.ids, "trace_losses": losses, "hits": hits, "high": high, "visits": visits}

    def state_dict(self) -> dict[str, Any]:
        """Return what was recorded in the epochs that ended."""
        return {"losses": self._losses, "counts": self._counts}

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Go on from there; None, or a state of other epochs or another number of samples, is refused."""
        if state is None or state["losses"].shape != self._losses.shape:
            raise ValueError("Expected a checkpoint that traces as many samples. Got another: remove it to begin anew.")
        self._losses.copy_(state["losses"])
        self._counts.copy_(state["counts"])
