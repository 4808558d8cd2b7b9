"""What a pruned loader asks of the order in which it walks through an epoch."""

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["Order"]


class Order(ABC):
    """One way through an epoch's samples. There is a subclass for each case.

    Attributes
    ----------
    resumable : bool
        Whether the same order comes when it is asked for again, so that a position in it has a meaning.
    world : int
        How many ranks share the epoch.
    most : float
        Samples that can be delivered of the epoch. A sampler of the user's may repeat some: no limit.
    remaining : ndarray of bool, shape (samples,)
        What is to be delivered of the epoch that was begun.
    """

    resumable = False
    world = 1

    def __init__(self, pruner: Pruner, batch_size: int, drop_last: bool) -> None:
        self.pruner, self.batch_size, self.drop_last = pruner, batch_size, drop_last
        self.most = math.inf
        self.remaining = np.zeros(0, dtype=np.bool_)
        self._begun: Epoch | None = None

    def begin(self, epoch: Epoch, *, whole: bool = False) -> None:
        """Set out on what remains of an epoch, or on the whole of it."""
        self._begun = epoch
        self.remaining = epoch.keep if whole else epoch.remaining
        self.leave_out(self.left_out(epoch))

    def left_out(self, epoch: Epoch) -> int:
        """How many kept samples will not be delivered, as far as that is known when the epoch begins."""
        return 0

    def leave_out(self, samples: int) -> None:
        """Say how many kept samples are not delivered, as soon as it is known."""
        self.pruner.note_left_out(samples)

    @abstractmethod
    def samplers(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """What stands in the place of the loader's own sampler and batch sampler, by the attribute's name."""

    @abstractmethod
    def batches(self) -> int | None:
        """How many batches the open epoch has, or else the next one; None if nobody can know."""

    def deliver(self, ids: SomeIds) -> None:  # noqa: B027 (most have nothing to say)
        """Look at a batch before it is delivered; raise if it cannot be right."""

    def finish(self, delivered: int) -> None:  # noqa: B027 (most have nothing to say)
        """Say what is known only when the loader has come to its end, after so many samples."""
