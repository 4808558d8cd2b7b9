"""Our own order, in one process: in the place of PyTorch's random and sequential ones."""

from collections.abc import Iterator

from prunedata.adapters.torch.orders.sampled import SampledOrder
from prunedata.run.epoch import Epoch
from prunedata.run.order import epoch_order
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["OwnOrder"]


class OwnOrder(SampledOrder):
    """The order that follows from the run's seed and the epoch's number, as ``Epoch.batches`` has it."""

    resumable = True

    def __init__(self, pruner: Pruner, batch_size: int, drop_last: bool, *, shuffle: bool) -> None:
        super().__init__(pruner, batch_size, drop_last)
        self.shuffle = shuffle

    def left_out(self, epoch: Epoch) -> int:
        """The samples of the last batch, if it isn't full and the loader drops it."""
        return epoch.kept % self.batch_size if self.drop_last else 0

    def pieces(self) -> Iterator[SomeIds]:
        """Yield what remains of the epoch."""
        self.begin_unless_begun()
        epoch = self.pruner.current
        return epoch_order(self.remaining, seed=epoch.seed, epoch=epoch.number, shuffle=self.shuffle)

    def __len__(self) -> int:
        last = self.pruner.schedule.epochs - 1
        return self.pruner.kept_in(min(self.pruner.next_epoch, last))
