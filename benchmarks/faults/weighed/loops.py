"""Users' loops in PyTorch and around it: each trains a linear model and writes down what it trained on."""

import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler

from benchmarks.faults.fuzz.sources import Items
from benchmarks.faults.weighed.setup import CLASSES, FEATURES, MOMENTUM, RATE, Weighed, data_of, held_back
from prunedata import Pruner, Schedule
from prunedata.adapters.torch import watch, wrap
from prunedata.dealing.deal import Deal
from prunedata.dealing.dealer import Dealer
from prunedata.policies import DroppingCount, EasyPruning, LossRanked, Random, RunningLoss

__all__ = [
    "Accelerated",
    "Dealt",
    "IterableLoop",
    "LoaderLoop",
    "Loop",
    "OwnBatchesLoop",
    "OwnSamplerLoop",
    "Sorting",
    "Stateful",
    "Stopped",
    "Streamed",
    "Tarred",
    "Watched",
    "WithIds",
    "pruner_of",
]

POLICIES: dict[str, Callable[[], Any]] = {
    "count": DroppingCount,
    "running": RunningLoss,
    "random": Random,
    "ranked": LossRanked,
    "easy": EasyPruning,
    "auto": lambda: "auto",
}


FIGURES = (0.5, 0.7, 0.8, 0.6, 0.4, 0.35)
"""Of the epochs, and the last for all after them: a run with ``auto`` begins to leave out."""


class Stopped(Exception):
    """The training has come to the moment at which it was to stop."""


def share_of(setup: Weighed, rank: int, ranks: int) -> Any:
    """A sampler of the user's own: a rank's share of an order that is the same in each epoch."""
    return np.random.default_rng(setup.seed + 1).permutation(setup.samples)[rank::ranks].tolist()


def pruner_of(setup: Weighed, **options: Any) -> Pruner:
    """The run of a setup: every epoch from the second on is pruned."""
    schedule = Schedule(setup.epochs, window=setup.epochs, start=1, block=1, pruned_per_block=1)
    without = held_back(setup) if setup.without else None
    named = {"leave_out": setup.leave_out, "holdout": setup.holdout, "without": without, "seed": setup.seed, **options}
    return Pruner(setup.samples, schedule, prune=setup.prune, policy=POLICIES[setup.policy](), **named)


class Loop:
    """A loop over the epochs in the user's own hands, without an adapter.

    Parameters
    ----------
    setup : Weighed
    poisoned : bool
        Whether samples that must not be learned come with wrong labels.
    rank, ranks : int
    state : dict or None
        What an earlier one had saved, to go on from.
    stop : int or None
        The moment at which :class:`Stopped` is raised.
    """

    def __init__(self, setup: Weighed, *, poisoned: bool, rank: int = 0, ranks: int = 1, states: Any = None) -> None:
        self.setup, self.poisoned, self.rank, self.ranks = setup, poisoned, rank, ranks
        features, labels = data_of(setup)
        self.features, self.labels = torch.from_numpy(features), torch.from_numpy(labels)
        self.model = torch.nn.Linear(FEATURES, CLASSES, bias=False, dtype=torch.float64)
        torch.nn.init.zeros_(self.model.weight)
        self.optimizer = torch.optim.SGD(self.model.parameters(), RATE, MOMENTUM)
        self.pruner = pruner_of(setup)
        self.moments = 0
        self.stop: int | None = None
        self.trained: dict[str, Any] = {"epochs": {}, "shared": {}, "steps": [], "gradients": [], "history": []}
        self.micro: list[list[int]] = []
        self.make()
        if states is not None:
            self.load(states)

    # -- what kinds of loops differ in

    def make(self) -> None:
        """Make loaders."""

    def batches(self, epoch: Any) -> Iterator[Any]:
        """Yield what is trained on of an epoch, in batches."""
        yield from epoch.batches(self.setup.batch)

    def ids_of(self, batch: Any) -> list[int]:
        return [int(each) for each in batch]

    def mean(self, batch: Any, losses: torch.Tensor) -> torch.Tensor:
        """Observe the losses of a batch, and return what is trained on."""
        ids = np.asarray(batch)
        self.pruner.observe(losses.detach().numpy(), ids)
        return (torch.from_numpy(self.pruner.current.factors(ids)) * losses).mean()

    def positions(self) -> Any:
        """What loaders save."""
        return None

    def go_to(self, positions: Any) -> None:
        """Load what loaders saved."""

    # -- the training

    def train(self, stop: int | None = None) -> dict[str, Any]:
        """Train to the end, or to a moment; return what was trained on, and ``state`` if it stopped."""
        self.stop = stop
        try:
            (self.by_calls if self.setup.calls else self.by_epochs)()
        except Stopped:
            self.trained["state"] = self.save()
        self.note_history()
        return self.trained

    def note_history(self) -> None:
        """Write down the records of the epochs, without what is another each time; and how many moments came."""
        free = ("seconds", "overhead")
        history = self.pruner.history
        self.trained["history"] = [{key: record[key] for key in record if key not in free} for record in history]
        self.trained["moments"] = self.moments

    def by_epochs(self) -> None:
        for epoch in self.pruner.epochs():
            self.pass_over(epoch)
            if self.setup.figure and not self.pruner.is_validated:
                self.moment()
                self.validate()
            self.moment()

    def by_calls(self) -> None:
        pruner = self.pruner
        if pruner.awaits_figure and not pruner.is_open:
            self.validate()
        while pruner.next_epoch < self.setup.epochs:
            self.pass_over(pruner.begin_epoch())
            self.moment()
            if self.setup.figure == "within" and not pruner.is_validated:
                self.validate()
                self.moment()
            self.end()
            self.moment()
            if self.setup.figure == "after":
                self.validate()

    def end(self) -> None:
        """End the epoch, in a loop that does so itself."""
        self.pruner.end_epoch()

    def pass_over(self, epoch: Any) -> None:
        self.note_epoch(epoch)
        for batch in self.batches(epoch):
            self.step(epoch, batch)
        if self.micro:
            self.update(epoch)

    def note_epoch(self, epoch: Any) -> None:
        """Write down what losses weigh in an epoch."""
        counts = epoch.trained
        self.trained["epochs"][epoch.number] = np.where(counts, 1.0 if epoch.weights is None else epoch.weights, 0.0)
        self.trained["shared"][epoch.number] = epoch.zero_weights

    def step(self, epoch: Any, batch: Any) -> None:
        ids = self.ids_of(batch)
        labels = self.labels[ids]
        if self.poisoned:
            counts = epoch.trained
            labels = torch.where(torch.from_numpy(counts[ids]), labels, (labels + 1) % CLASSES)
        losses = F.cross_entropy(self.model(self.features[ids]), labels, reduction="none")
        self.backward(self.mean(batch, losses) / self.setup.accumulate)
        self.micro.append(ids)
        if len(self.micro) == self.setup.accumulate:
            self.update(epoch)
            self.moment()

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def update(self, epoch: Any) -> None:
        gradient = self.model.weight.grad
        self.trained["steps"].append((epoch.number, self.micro))
        self.trained["gradients"].append(np.zeros((CLASSES, FEATURES)) if gradient is None else gradient.numpy().copy())
        if self.ranks == 1:  # ranks may have other numbers of steps, and stay where they are
            self.optimizer.step()
        self.optimizer.zero_grad()
        self.micro = []

    def validate(self) -> None:
        """Hand over the figure of the epoch, the same on all ranks."""
        self.pruner.validated(self.figure(), agreed=True)

    def figure(self) -> float:
        """That of the epoch that is open or has just ended: figures rise, and fall from the fourth on."""
        pruner = self.pruner
        return FIGURES[min(len(pruner.history) - (not pruner.is_open), len(FIGURES) - 1)]

    def moment(self) -> None:
        """A moment at which a run may be stopped, with a checkpoint."""
        self.moments += 1
        if self.moments == self.stop:
            raise Stopped

    # -- checkpoints

    def save(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "run": self.pruner.state_dict(),
            "loaders": self.positions(),
            "moments": self.moments,
        }

    def load(self, states: list[dict[str, Any]]) -> None:
        """Go on from the states of all ranks."""
        mine = states[self.rank]
        self.model.load_state_dict(mine["model"])
        self.optimizer.load_state_dict(mine["optimizer"])
        self.pruner.load_state_dict(mine["run"] if len(states) == 1 else [one["run"] for one in states])
        self.go_to(mine["loaders"])


class Dealt(Loop):
    """By a Dealer, which one worker asks for batches."""

    def make(self) -> None:
        self.dealer = Dealer(self.pruner, self.setup.batch, auto_end=False)

    def batches(self, epoch: Any) -> Iterator[Any]:
        while isinstance(deal := self.dealer.deal("worker"), Deal):
            yield deal

    def by_epochs(self) -> None:
        self.by_calls()

    def end(self) -> None:
        self.dealer.end_epoch()

    def positions(self) -> Any:
        return self.dealer.state_dict()

    def go_to(self, positions: Any) -> None:
        self.dealer.load_state_dict(positions)

    def ids_of(self, batch: Any) -> list[int]:
        return [int(each) for each in batch.ids]

    def mean(self, batch: Any, losses: torch.Tensor) -> torch.Tensor:
        weights = batch.weights
        self.dealer.observe(batch, losses.detach().numpy())
        return losses.mean() if weights is None else (torch.from_numpy(np.array(weights)) * losses).mean()


class LoaderLoop(Loop):
    """A DataLoader that was pruned; the kinds below differ in what it is made of."""

    options: ClassVar[dict[str, Any]] = {}
    kind: Any = DataLoader

    def make(self) -> None:
        self.loader = wrap(self.user_loader(), self.pruner, **self.options | self.on_ranks)

    @property
    def on_ranks(self) -> dict[str, Any]:
        """What ``prune`` is told beside ``options`` where several ranks train."""
        return {}

    def user_loader(self) -> Any:
        setup = self.setup
        data: Any = Items(setup.samples)
        named: dict[str, Any] = {"batch_size": setup.batch, "drop_last": setup.drop_last}
        if self.ranks > 1:
            named["sampler"] = DistributedSampler(data, self.ranks, self.rank)
        return self.kind(data, **named, **({} if self.ranks > 1 else {"shuffle": True}))

    def batches(self, epoch: Any) -> Iterator[Any]:
        yield from self.loader

    def mean(self, batch: Any, losses: torch.Tensor) -> torch.Tensor:
        return self.loader.observe(losses)  # type: ignore[no-any-return]

    def positions(self) -> Any:
        return self.loader.state_dict()

    def go_to(self, positions: Any) -> None:
        self.loader.load_state_dict(positions)


class WithIds(LoaderLoop):
    options: ClassVar[dict[str, Any]] = {"with_ids": True}

    def ids_of(self, batch: Any) -> list[int]:
        return [int(each) for each in batch[1]]

    def mean(self, batch: Any, losses: torch.Tensor) -> torch.Tensor:
        return self.loader.observe(losses, batch[0])  # type: ignore[no-any-return]


class Stateful(LoaderLoop):
    def user_loader(self) -> Any:
        self.kind = import_module("torchdata.stateful_dataloader").StatefulDataLoader
        return super().user_loader()


class OwnSamplerLoop(LoaderLoop):
    def user_loader(self) -> Any:
        setup = self.setup
        sampler = share_of(setup, self.rank, self.ranks)
        return DataLoader(Items(setup.samples), setup.batch, sampler=sampler, drop_last=setup.drop_last)


class OwnBatchesLoop(LoaderLoop):
    def user_loader(self) -> Any:
        sampler = BatchSampler(share_of(self.setup, self.rank, self.ranks), self.setup.batch, self.setup.drop_last)
        return DataLoader(Items(self.setup.samples), batch_sampler=sampler)


class Sorting(LoaderLoop):
    """A collate function that sorts, so that samples carry their ids."""

    options: ClassVar[dict[str, Any]] = {"id_key": "id"}

    def user_loader(self) -> Any:
        def sort(batch: list[Any]) -> dict[str, torch.Tensor]:
            batch = sorted(batch, key=lambda one: int(one["at"]), reverse=True)
            return {key: torch.as_tensor([int(one[key]) for one in batch]) for key in batch[0]}

        setup = self.setup
        data: Any = [{"at": at} for at in range(setup.samples)]
        sampler: Any = RandomSampler(data)
        if self.ranks > 1:
            sampler = DistributedSampler(data, self.ranks, self.rank)
        return DataLoader(data, setup.batch, sampler=sampler, collate_fn=sort, drop_last=setup.drop_last)

    @property
    def on_ranks(self) -> dict[str, Any]:
        return {"uneven": "drop"} if self.ranks > 1 else {}

    def ids_of(self, batch: Any) -> list[int]:
        return [int(each) for each in batch["at"]]


class Streamed(LoaderLoop):
    """A stream in a DataLoader; of several ranks each reads a share."""

    def user_loader(self) -> Any:
        from prunedata.adapters import iterable  # noqa: PLC0415

        class Share:
            def __init__(self, ids: range) -> None:
                self.ids = ids

            def __iter__(self) -> Iterator[int]:
                return iter(self.ids)

        raw = Share(range(self.rank, self.setup.samples, self.ranks))
        stream: Any = iterable.wrap(raw, self.pruner, id=int)
        return DataLoader(stream, self.setup.batch, drop_last=self.setup.drop_last)


class Watched(Loop):
    """Batches of whoever made them, by weight."""

    def make(self) -> None:
        order = np.random.default_rng(self.setup.seed + 2).permutation(self.setup.samples)
        size = self.setup.batch
        batches = [{"id": torch.from_numpy(order[at : at + size])} for at in range(0, order.size, size)]
        self.watched = watch(batches, self.pruner, ids="id")

    def batches(self, epoch: Any) -> Iterator[Any]:
        yield from self.watched

    def ids_of(self, batch: Any) -> list[int]:
        return [int(each) for each in batch["id"]]

    def mean(self, batch: Any, losses: torch.Tensor) -> torch.Tensor:
        return self.watched.observe(losses)


class Accelerated(LoaderLoop):
    """accelerate prepares the loader and goes back."""

    def make(self) -> None:
        from accelerate import Accelerator, DataLoaderConfiguration  # noqa: PLC0415

        self.accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(even_batches=True))
        self.loader = wrap(self.user_loader(), self.pruner)
        self.prepared = self.accelerator.prepare(self.loader) if self.ranks == 1 else self.loader

    def batches(self, epoch: Any) -> Iterator[Any]:
        yield from self.loader

    def backward(self, loss: torch.Tensor) -> None:
        self.accelerator.backward(loss)


class IterableLoop(Loop):
    """An iterable that was pruned, in a loop that batches by itself."""

    def make(self) -> None:
        from prunedata.adapters import iterable  # noqa: PLC0415

        self.stream = iterable.wrap(list(range(self.setup.samples)), self.pruner, id=int)

    def batches(self, epoch: Any) -> Iterator[Any]:
        waiting: list[int] = []
        for number, _ in self.stream:
            waiting.append(number)
            if len(waiting) == self.setup.batch:
                yield np.array(waiting)
                waiting = []
        if waiting:
            yield np.array(waiting)


class Tarred(Loop):
    """A WebDataset of two shards."""

    def make(self) -> None:
        import io  # noqa: PLC0415
        import tarfile  # noqa: PLC0415

        import webdataset as wds  # noqa: PLC0415

        from prunedata.adapters.webdataset import wrap as prune_shards  # noqa: PLC0415
        from prunedata.streams.shards import ShardIndex  # noqa: PLC0415

        self.folder = tempfile.TemporaryDirectory(prefix="prunedata-shards-")
        urls = []
        for shard, ids in enumerate(np.array_split(np.arange(self.setup.samples), 2)):
            urls.append(str(Path(self.folder.name) / f"{shard}.tar"))
            with tarfile.open(urls[-1], "w") as file:
                for each in ids.tolist():
                    held = str(each).encode()
                    told = tarfile.TarInfo(f"{each:06d}.txt")
                    told.size = len(held)
                    file.addfile(told, io.BytesIO(held))
        index = ShardIndex.scan(urls)
        pruned: Any = prune_shards(wds.WebDataset(urls, shardshuffle=False), self.pruner, index)
        self.stream = pruned.decode().to_tuple("txt").batched(self.setup.batch)

    def batches(self, epoch: Any) -> Iterator[Any]:
        for ids, _ in self.stream:
            yield np.asarray(ids)
