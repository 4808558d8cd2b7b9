"""How many batches and optimizer steps each epoch of a run has."""

from dataclasses import dataclass

from prunedata.run.pruner import Pruner

__all__ = ["Steps"]


@dataclass(frozen=True)
class Steps:
    """How many batches and optimizer steps each epoch of a run has, for each of its processes.

    Attributes
    ----------
    pruner : Pruner
    batch_size : int
        Of one process.
    accumulate : int
        Batches that an optimizer step is made of; the last step of an epoch may have fewer.
    drop_last : bool
        Whether the last batch of an epoch is left out if it isn't full.
    world : int
        Processes that train together. All of them have as many samples, as a few come twice.
    """

    pruner: Pruner
    batch_size: int
    accumulate: int
    drop_last: bool
    world: int

    def kept(self, epoch: int) -> int:
        """How many samples the epoch had, or will have, in all processes."""
        history = self.pruner.history
        return int(history[epoch]["kept"]) if epoch < len(history) else self.pruner.kept_in(epoch)

    def batches(self, epoch: int) -> int:
        """How many batches the epoch has."""
        share = -(-self.kept(epoch) // self.world)
        return share // self.batch_size if self.drop_last else -(-share // self.batch_size)

    def steps(self, epoch: int) -> int:
        """How many optimizer steps the epoch has."""
        return -(-self.batches(epoch) // self.accumulate)

    def before(self, epoch: int) -> int:
        """How many optimizer steps all epochs before this one have."""
        return sum(self.steps(number) for number in range(epoch))

    @property
    def total(self) -> int:
        """How many optimizer steps the whole run has, as far as the pruner knows by now."""
        return self.before(self.pruner.schedule.epochs)

    @property
    def visits(self) -> int:
        """How many samples the whole run trains on, those that come again counted again."""
        return sum(self.kept(number) for number in range(self.pruner.schedule.epochs))
