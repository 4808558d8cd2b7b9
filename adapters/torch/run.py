"""PyTorch's adapter for a run: one object, which all loaders that were wrapped for the run share."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakSet

import numpy as np
import torch.distributed as dist

from prunedata.adapters.torch.losses import Block, Recorder
from prunedata.adapters.torch.ranks import Ranks, gather_numbers
from prunedata.adapters.torch.seeds import WorkerSeeds
from prunedata.adapters.torch.trainers import missing_adapter
from prunedata.counting.counts import Tally
from prunedata.errors import LossError, PrunedataError
from prunedata.run.adapter import Adapter, Delivery, check_iterated
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.run.waiting import Shared, SharedSteps


class TorchRun(Adapter):
    """Holds the losses that are on a device, and reports what the loaders delivered: ``delivery`` is the last one's."""

    key = "torch"
    by_weight = True

    def __init__(self, pruner: Pruner) -> None:
        self._pruner, self.recorder = pruner, Recorder(pruner)
        self.weighted_epoch: Epoch | None = None
        """The open epoch, if its samples have weights or some are left out by weight."""
        self.is_shared = False
        """Whether several processes train the open epoch: then an order selects which samples of a batch to record."""
        self.place = (0, 1)
        """Rank and number of processes, if a trainer deals an epoch to them that no DistributedSampler deals."""
        self.positioned_order: object | None = None
        """The order of the loader that began the open epoch, if no other has begun since: its position tells what was
        delivered."""
        self.leader: Callable[[], None] | None = None
        """Set by the adapter of a trainer that owns the loop over the epochs, while it trains. A loader calls it before
        its first batch, to begin the epoch if it has not begun. Without it, loaders refuse to be iterated by a trainer
        that is known to freeze their length."""
        self.newest: object | None = None
        """The loader that was wrapped last, with ``with_ids``. Accelerate makes a loader of its own from it; a script
        that gives this one the same name would lose the one that takes the losses."""
        self._begun: int | None = None
        self.steps = SharedSteps()  # which samples of streams this rank gets in which step
        self.settings: list[str] = []
        """How the orders cut and share an epoch, in words: they must be the same on all ranks."""
        self.joins_batches = False
        """Whether a trainer observes several batches as one: then each rank has batches of its own."""
        self.streams = False  # whether a loader reads a stream
        self.seeds: WeakSet[WorkerSeeds] = WeakSet()
        """Those of all loaders. Accelerate iterates a loader of its own, which only shares the generator."""
        self._deliveries: dict[object, Delivery] = {}
        """The reports of the loaders that have begun. Those under different keys add up."""
        self.trained_order: object | None = None
        """Of the orders that each deliver all that an epoch keeps, the one whose losses are observed."""
        self._warned = False  # whether the warning of a second pass was shown
        self.starts = 0  # how often an epoch was begun or resumed: each pass over a loader belongs to one of these

    @staticmethod
    def group_size() -> int:
        """Return how many processes train together."""
        return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1

    def group_place(self) -> tuple[int, int]:
        """Return the rank of this process, and the number of processes."""
        return (dist.get_rank(), dist.get_world_size()) if self.group_size() > 1 else (0, 1)

    @staticmethod
    def gather(number: int) -> list[int]:
        """Return the number of each process, by rank."""
        return [int(each) for (each,) in gather_numbers([number])]

    @staticmethod
    def broadcast(rank: int, value: Any) -> Any:
        """Return the value of one rank, in all processes."""
        box = [value]
        dist.broadcast_object_list(box, src=rank)
        return box[0]

    @property
    def deliveries(self) -> Sequence[Delivery]:
        """The report of each loader that has begun since the epoch was begun or resumed."""
        return tuple(self._deliveries.values())

    def add_delivery(self, key: object, delivery: Delivery) -> None:
        """Add the report of a loader that begins, in the place of an earlier one with the same key."""
        self.delivery = self._deliveries[key] = delivery

    def train_on(self, order: object, earlier: int) -> None:
        """Note which loader is trained on; raise if samples would be observed twice in the epoch.

        ``earlier`` is how many of its batches were observed before this pass over it.
        """
        number = self._pruner.next_epoch
        if earlier:
            raise LossError(
                f"Expected one pass over the loader in epoch {number}. Got a second one after {earlier} batches of the "
                "first had been observed, which would count twice: to resume an epoch after a break, begin it again, "
                "by begin_epoch() or pruner.epochs(), and the loader delivers what remains."
            )
        if self.trained_order is not None:
            raise LossError(
                f"Expected the losses of a single loader in epoch {number}, because each delivers all samples. Got "
                "those of "
                "a second one, which would count twice: train on one of them in an epoch; or call begin_epoch() "
                "between them, and the second delivers the rest."
            )
        self.trained_order = order

    def warn_of_second_pass(self, epoch: Epoch) -> None:
        """Warn once that a second pass over a loader delivers no more than the first: what is kept, or remained."""
        coming = int(np.count_nonzero(epoch.remaining))
        if coming < self._pruner.samples and self.leader is None and not self._warned:
            self._warned = True
            kind = "kept" if coming == epoch.kept else "remaining"
            warnings.warn(
                f"Expected one pass over the loader in epoch {epoch.number}. Got a second one, which delivers the "
                f"{coming} {kind} samples of {self._pruner.samples} once more: for a figure of all of them, as the "
                "accuracy in training, iterate the loader that you gave to wrap().",
                UserWarning,
                stacklevel=2,
            )

    def add_setting(self, setting: str) -> None:
        """Add how an order cuts and shares an epoch."""
        if setting not in self.settings:  # a loader may be wrapped anew in every epoch
            self.settings.append(setting)

    def share(self, shared: Shared | None) -> None:
        """Set how the ranks share the batches of the loader that begins, before any of its losses is observed."""
        if self.group_size() > 1:
            self._pruner.share_batches(None if self.joins_batches else shared)

    def join(self) -> None:
        """Merge epochs with the other processes from now on, if there are any."""
        pruner = self._pruner
        self.is_shared = self.group_size() > 1
        if not self.is_shared:
            return
        if pruner.group.processes == 1:
            pruner.join(Ranks(pruner, self.settings))
        if self._begun == pruner.next_epoch and isinstance(pruner.group, Ranks):
            pruner.group.compare_loaders()  # wrapped within an epoch, which has begun without this loader

    def check_in_epoch(self) -> None:
        """Raise outside of an epoch, unless a trainer iterates: it begins the epoch, or is refused, later."""
        if self.leader is None and missing_adapter() is None:
            _ = self._pruner.current

    def let_trainer_begin(self) -> None:
        """Let a trainer's adapter, if one leads, begin the epoch before its first batch.

        Raises :class:`PrunedataError` if a trainer iterates whose adapter is missing. Nothing has gone wrong at this
        point yet. If the error came when a trainer makes its iterators, Lightning would hide it behind one of its own.
        """
        if self.leader is not None:
            self.leader()
            return
        message = missing_adapter()
        if message is not None:
            raise PrunedataError(message)

    def begin_epoch(self, epoch: Epoch) -> None:
        """Forget what was delivered: the loaders begin anew."""
        self.join()  # the process group may have been made after the loader was wrapped
        self.weighted_epoch = epoch if epoch.is_weighed else None
        self.starts += 1
        self._begun, self.delivery, self._deliveries, self.trained_order = epoch.number, None, {}, None
        for each in self.seeds:
            each.begin(epoch)

    def held_back(self) -> Iterator[Block]:
        """Hand over the losses that are on a device."""
        return self.recorder.held_back()

    def forget(self) -> None:
        """Drop the losses that are on a device."""
        self.recorder.forget()
        self._begun, self.delivery, self._deliveries = None, None, {}
        self.positioned_order = None

    def end_epoch(self, epoch: Epoch, tally: Tally) -> None:
        """Raise if no pruned loader was iterated though losses came, or if ranks read the same part of a stream."""
        if self.delivery is None and self._begun == epoch.number:
            check_iterated(epoch, tally, "loader")
        if not self.streams or self.delivery is None:
            return  # without a loader's report accelerate has dealt the stream, and repeated some of it at the end
        group = self._pruner.group
        trained = tally.observed if not epoch.zero_weights else int(tally.visits[epoch.trained].sum(dtype=np.int64))
        repeated = group.observed - trained if isinstance(group, Ranks) else 0
        if repeated > 0:
            raise LossError(
                f"Expected each rank to read a share of the stream in epoch {epoch.number}. Got {repeated} samples "
                "that came on several ranks: split them, by nodesplitter=webdataset.split_by_node, by "
                "datasets.distributed.split_dataset_by_node, or in __iter__; or let wrap(..., deal=True) deal the "
                "kept ones."
            )
