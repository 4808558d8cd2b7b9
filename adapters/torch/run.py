"""PyTorch's part in a run: one adapter, which all loaders that were wrapped for the run share."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakSet

import numpy as np
import torch.distributed as dist

from prunedata.adapters.torch.losses import Block, Recorder
from prunedata.adapters.torch.ranks import Ranks, everyones
from prunedata.adapters.torch.seeds import WorkerSeeds
from prunedata.adapters.torch.trainers import trainer_that_iterates
from prunedata.counting.counts import Tally
from prunedata.counting.waiting import Shared, SharedSteps
from prunedata.errors import LossError, PrunedataError
from prunedata.run.adapter import Adapter, Delivery, check_iterated
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner

__all__ = ["TorchRun"]


class TorchRun(Adapter):
    """Holds the losses that are on a device, and says what the loaders that were iterated have delivered.

    Attributes
    ----------
    recorder : Recorder
    weighed : Epoch or None
        The one that was begun or gone on with last, if its samples have weights or some are left out by weight.
    is_shared : bool
        Whether several processes train that epoch, so that an order has to be asked for its part of every batch.
    delivery : Delivery or None
        Of the loader that began last.
    place : tuple of int
        This process's rank and the number of processes, if a trainer deals an epoch to them that no DistributedSampler
        deals; (0, 1) otherwise.
    positioned : object or None
        The order of the loader whose position says what came of the open epoch: it began the epoch, and no other
        loader has begun since. None if no position says it.
    leader : callable or None
        Set by the adapter of a trainer that owns the loop over the epochs, while it trains. A loader calls it before
        its first batch: it begins the epoch, if that is not done. Without it, loaders refuse to be iterated by a
        trainer that is known to freeze their length.
    """

    key = "torch"
    by_weight = True

    def __init__(self, pruner: Pruner) -> None:
        self._pruner, self.recorder = pruner, Recorder(pruner)
        self.weighed: Epoch | None = None
        self.is_shared = False
        self.place = (0, 1)
        self.positioned: object | None = None
        self.leader: Callable[[], None] | None = None
        self._begun: int | None = None
        self.steps = SharedSteps()
        """Which samples of streams this rank gets in which step."""
        self.settings: list[str] = []
        """How our own orders cut and share an epoch, in words: the same on all ranks."""
        self.joins_batches = False
        """Whether a trainer observes several batches as one, which then are not the loader's: each rank has its own."""
        self.streams = False
        """Whether a loader reads a stream."""
        self.seeds: WeakSet[WorkerSeeds] = WeakSet()
        """Of all loaders. Accelerate iterates a loader of its own, and with it takes no more than the generator."""
        self._said: dict[object, Delivery] = {}
        """What the loaders say that have begun, by what adds up; a newer one takes the place of the older."""
        self.learner: object | None = None
        """Of the loaders that each deliver all that an epoch keeps, the order of the one that is trained on."""
        self._told_kept = False
        """Whether it was said that a second pass delivers no more than the kept samples."""
        self.begins = 0
        """How often an epoch was begun or gone on with: a loader's pass is of one of these."""

    @staticmethod
    def group_size() -> int:
        """How many processes train together."""
        return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1

    @property
    def deliveries(self) -> Sequence[Delivery]:
        """What each loader says that has begun since the epoch was begun or gone on with."""
        return tuple(self._said.values())

    def set_out(self, key: object, delivery: Delivery) -> None:
        """A loader begins. Its delivery takes the place of an earlier one with the same key, and adds to others."""
        self.delivery = self._said[key] = delivery

    def learn_from(self, order: object, earlier: int) -> None:
        """Let a loader be the one that is trained on, unless samples would be observed twice in the epoch.

        ``earlier`` is how many of its batches were observed before this pass over it.
        """
        number = self._pruner.next_epoch
        if earlier:
            raise LossError(
                f"Expected one pass over the loader in epoch {number}. Got a second one after {earlier} batches of the "
                "first had been observed, which would count twice: to go on where a loop was left, begin the epoch "
                "again, by begin_epoch() or pruner.epochs(), and the loader delivers what remains."
            )
        if self.learner is not None:
            raise LossError(
                f"Expected the losses of one loader in epoch {number}, of those that deliver all samples. Got those of "
                "a second one, which would count twice: train on one of them in an epoch; or call begin_epoch() "
                "between them, and the second delivers what remains."
            )
        self.learner = order

    def tell_kept(self, epoch: Epoch) -> None:
        """Warn once, of a second pass over a loader in one epoch, that it delivers no more than the first."""
        if epoch.kept < self._pruner.samples and self.leader is None and not self._told_kept:
            self._told_kept = True
            warnings.warn(
                f"Expected one pass over the loader in epoch {epoch.number}. Got a second one, which delivers the "
                f"{epoch.kept} kept samples of {self._pruner.samples} once more: for a figure of all of them, as the "
                "accuracy in training, iterate the loader that you gave to wrap().",
                UserWarning,
                stacklevel=2,
            )

    def cut_by(self, setting: str) -> None:
        """Say how an order or a stream cuts and shares an epoch."""
        if setting not in self.settings:  # a loader may be wrapped anew in every epoch
            self.settings.append(setting)

    def share(self, shared: Shared | None) -> None:
        """Say how the ranks share the batches of the loader that begins, before any loss of it is observed."""
        if self.group_size() > 1:
            self._pruner.share_batches(None if self.joins_batches else shared)

    def group_place(self) -> tuple[int, int]:
        """Which process this is, and of how many."""
        return (dist.get_rank(), dist.get_world_size()) if self.group_size() > 1 else (0, 1)

    @staticmethod
    def of_all(number: int) -> list[int]:
        """The number that each process gives."""
        return [int(one) for (one,) in everyones([number])]

    @staticmethod
    def from_rank(rank: int, given: Any) -> Any:
        """What one process gives, in all of them."""
        box = [given]
        dist.broadcast_object_list(box, src=rank)
        return box[0]

    def join(self) -> None:
        """Merge with the other processes from now on, if there are any."""
        pruner = self._pruner
        self.is_shared = self.group_size() > 1
        if not self.is_shared:
            return
        if pruner.group.processes == 1:
            pruner.join(Ranks(pruner, self.settings))
        if self._begun == pruner.next_epoch and isinstance(pruner.group, Ranks):
            pruner.group.compare_loaders()  # wrapped within an epoch, which has begun without this loader

    def check_loop(self) -> None:
        """Raise outside of an epoch, unless a trainer asks: its adapter begins the epoch, or its loop is refused."""
        if self.leader is None and trainer_that_iterates() is None:
            _ = self._pruner.current

    def lead(self) -> None:
        """Let the trainer's adapter, if one leads, begin the epoch whose first batch is asked for.

        Raises :class:`PrunedataError` if a trainer asks whose adapter does not lead. This early nothing has gone wrong
        yet; earlier, when a trainer makes its iterators, Lightning would hide the error behind one of its own.
        """
        if self.leader is not None:
            self.leader()
            return
        told = trainer_that_iterates()
        if told is not None:
            raise PrunedataError(told)

    def begin_epoch(self, epoch: Epoch) -> None:
        """Forget what was delivered: the loader begins anew."""
        self.join()  # the processes may have met after the loader was wrapped
        self.weighed = epoch if epoch.is_weighed else None
        self.begins += 1
        self._begun, self.delivery, self._said, self.learner = epoch.number, None, {}, None
        for each in self.seeds:
            each.begin(epoch)

    def held_back(self) -> Iterator[Block]:
        """Hand over the losses that are on a device."""
        return self.recorder.held_back()

    def forget(self) -> None:
        """Drop them."""
        self.recorder.forget()
        self._begun, self.delivery, self._said = None, None, {}
        self.positioned = None

    def end_epoch(self, epoch: Epoch, tally: Tally) -> None:
        """Raise if no pruned loader was iterated, and what was observed shows that another one was."""
        if self.delivery is None and self._begun == epoch.number:
            check_iterated(epoch, tally, "loader")
        group = self._pruner.group
        counted = tally.observed if not epoch.zero_weights else int(tally.visits[epoch.trained].sum(dtype=np.int64))
        twice = group.observed - counted if isinstance(group, Ranks) else 0
        # Without a loader's delivery somebody else has dealt the stream, as accelerate, who repeats some at the end.
        if self.streams and self.delivery is not None and twice > 0:
            raise LossError(
                f"Expected each rank to read a share of the stream in epoch {epoch.number}. Got {twice} samples that "
                "came on several ranks: split them, by nodesplitter=webdataset.split_by_node, by "
                "datasets.distributed.split_dataset_by_node, or in __iter__; or let wrap(..., deal=True) deal the "
                "kept ones."
            )
