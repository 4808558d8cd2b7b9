"""How many batches and optimizer steps each epoch of a run has."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Steps"]


@dataclass(frozen=True)
class Steps:
    """How many batches and optimizer steps each epoch of a run has, in each of its processes.

    Attributes
    ----------
    batches : sequence of int, shape (epochs,)
        Of each epoch.
    accumulate : int
        Batches that an optimizer step is made of. The last step of an epoch may have fewer.
    """

    batches: Sequence[int]
    accumulate: int

    def of(self, epoch: int) -> int:
        """How many optimizer steps the epoch has; 0 for one that the run has not."""
        return -(-self.batches[epoch] // self.accumulate) if epoch < len(self.batches) else 0

    def before(self, epoch: int) -> int:
        """How many optimizer steps all epochs before this one have."""
        return sum(self.of(number) for number in range(epoch))

    @property
    def total(self) -> int:
        """How many optimizer steps the whole run has."""
        return self.before(len(self.batches))
