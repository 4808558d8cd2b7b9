"""Training runs side by side, regular or pruned, one epoch of each in turn.

Seconds are the processor's: training here keeps one core busy all the time, so they are those of the clock, without
what other programs on the machine took.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader

from benchmarks.common.data import Data, ImageSet
from benchmarks.common.networks import build
from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap
from prunedata.policies.protocol import Policy

__all__ = [
    "Setting",
    "TrainedEpoch",
    "TrainingRun",
    "batch_seconds",
    "interleave",
    "new_pruner",
    "paired_percent",
    "pruned_run",
    "regular_run",
]

MOMENTUM, WEIGHT_DECAY, RATE_DROP = 0.9, 5e-4, 0.2
HELD_OUT = 0.1
"""Share of the samples that "auto" holds out, to see when the network begins to learn wrong labels by heart."""


@dataclass(frozen=True)
class Setting:
    """What all runs share. The learning rate drops to a fifth at `drops`, or where a window of `schedule` begins."""

    data: Data
    network: str
    schedule: Schedule
    prune: int | float
    batch_size: int
    learning_rate: float
    seed: int
    drops: tuple[int, ...] | None = None

    def loader(self) -> DataLoader[tuple[Tensor, int]]:
        """Return an ordinary DataLoader over the training set, shuffled by the seed."""
        order = torch.Generator().manual_seed(self.seed)
        return DataLoader(self.data.train, batch_size=self.batch_size, shuffle=True, generator=order)


class Learner:
    """A network with its optimiser and learning rate; equal settings give equal initial weights."""

    def __init__(self, setting: Setting) -> None:
        torch.manual_seed(setting.seed)
        self.model = build(setting.network, setting.data.channels, setting.data.classes)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), setting.learning_rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
        )
        windows = [first for first, _ in setting.schedule.windows if first > 0]
        drops = windows if setting.drops is None else list(setting.drops)
        self.rate = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, drops, RATE_DROP)


@dataclass(frozen=True)
class TrainedEpoch:
    """One epoch of a run: samples trained on, processor seconds of training, mean losses.

    Test accuracy, and that of the class that does worst, are from 0 to 1.
    """

    number: int
    pruned: bool
    visits: int
    seconds: float
    train_loss: float
    test_loss: float = 0.0
    accuracy: float = 0.0
    worst_class: float = 0.0


@dataclass
class TrainingRun:
    """A run under way: `steps` trains one more epoch each time it is advanced, `epochs` holds those done."""

    learner: Learner
    steps: Iterator[TrainedEpoch]
    pruner: Pruner | None = None
    batch_times: list[float] = field(default_factory=list)
    epochs: list[TrainedEpoch] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Seconds of training, without the tests."""
        return sum(epoch.seconds for epoch in self.epochs)


def regular_run(setting: Setting) -> TrainingRun:
    """Return a run without pruning, a plain loop that knows nothing of prunedata; it times its batches."""
    learner, batch_times = Learner(setting), list[float]()
    return TrainingRun(learner, _regular(setting, learner, batch_times), batch_times=batch_times)


def pruned_run(
    setting: Setting, policy: Policy | Literal["auto"], load: Callable[[Pruner], Any] | None = None
) -> TrainingRun:
    """Return a run that prunes by `policy`; `load` makes its loader, of the setting's if it is not given."""
    pruner = new_pruner(setting, policy)
    learner = Learner(setting)
    loader = wrap(setting.loader(), pruner) if load is None else load(pruner)
    return TrainingRun(learner, _pruned(loader, learner, pruner), pruner)


def new_pruner(setting: Setting, policy: Policy | Literal["auto"]) -> Pruner:
    """Return the pruner of a run."""
    return Pruner(
        len(setting.data.train),
        setting.schedule,
        prune=setting.prune,
        policy=policy,
        seed=setting.seed,
        batch_size=setting.batch_size,
        holdout=HELD_OUT if policy == "auto" else None,
    )


def _regular(setting: Setting, learner: Learner, batch_times: list[float]) -> Iterator[TrainedEpoch]:
    loader = setting.loader()
    for number in range(setting.schedule.epochs):
        begun, visits, total = time.process_time(), 0, torch.zeros(())
        last = begun
        for images, labels in loader:
            loss = F.cross_entropy(learner.model(images), labels)
            learner.optimizer.zero_grad()
            loss.backward()
            learner.optimizer.step()
            visits += len(labels)
            total += loss.detach() * len(labels)
            now = time.process_time()
            batch_times.append(now - last)
            last = now
        learner.rate.step()
        yield TrainedEpoch(number, False, visits, time.process_time() - begun, float(total) / visits)


def _pruned(loader: Any, learner: Learner, pruner: Pruner) -> Iterator[TrainedEpoch]:
    # Counting from here charges the run with all that the pruner does between epochs: selection and commit.
    begun = time.process_time()
    for epoch in pruner.epochs():
        visits, total = 0, torch.zeros(())
        for images, labels in loader:
            losses = F.cross_entropy(learner.model(images), labels, reduction="none")
            learner.optimizer.zero_grad()
            loss = loader.observe(losses)
            loss.backward()
            learner.optimizer.step()
            visits += len(labels)
            total += loss.detach() * len(labels)
        learner.rate.step()
        yield TrainedEpoch(epoch.number, epoch.pruned, visits, time.process_time() - begun, float(total) / visits)
        begun = time.process_time()


def interleave(
    runs: Mapping[str, TrainingRun], epochs: int, test: ImageSet, tick: Callable[[TrainedEpoch], object]
) -> None:
    """Train all runs, each one epoch at a time in turn, and test after every epoch; `tick` is called with it."""
    names = list(runs)
    for number in range(epochs):
        # A machine's speed drifts (heat, other programs): runs one after the other would measure the drift as
        # a saving. Epoch e of every run is trained within seconds of the others, and each goes first in turn.
        first = number % len(names)
        for name in names[first:] + names[:first]:
            run = runs[name]
            epoch = next(run.steps)
            test_loss, accuracy, worst = evaluate(run.learner, test)
            run.epochs.append(replace(epoch, test_loss=test_loss, accuracy=accuracy, worst_class=worst))
            tick(epoch)
    for run in runs.values():
        next(run.steps, None)  # the pruner commits the last epoch when its loop asks for one more


def evaluate(learner: Learner, test: ImageSet, batch_size: int = 500) -> tuple[float, float, float]:
    """Return the mean loss over `test`, the share that the network gets right, and that of the worst class."""
    loss, rights, classes = 0.0, list[Tensor](), list[Tensor]()
    with torch.no_grad():
        for indices in torch.arange(len(test)).split(batch_size):
            images, labels = test.batch(indices)
            scores = learner.model(images)
            loss += float(F.cross_entropy(scores, labels, reduction="sum"))
            rights.append(scores.argmax(1) == labels)
            classes.append(labels)
    right, label = torch.cat(rights).double(), torch.cat(classes)
    worst = min(float(right[label == one].mean()) for one in label.unique())
    return loss / len(test), float(right.mean()), worst


def batch_seconds(setting: Setting, batches: int = 20) -> float:
    """Return the median seconds of a training step, from a few steps of a network that is thrown away.

    It also gets torch's first, slow steps out of the way of what is timed later.
    """
    learner, times = Learner(setting), list[float]()
    for images, labels in itertools.islice(setting.loader(), batches):
        begun = time.process_time()
        F.cross_entropy(learner.model(images), labels).backward()
        learner.optimizer.step()
        times.append(time.process_time() - begun)
    return statistics.median(times)


def paired_percent(regular: TrainingRun, other: TrainingRun) -> float:
    """Return the percent of training time saved, robust against epochs slowed down by other programs.

    Every epoch's time is divided by that of the regular run's same epoch, trained seconds apart. The median
    ratio of the pruned epochs and that of the whole ones are weighted by how many there are of each.
    """
    ratios: dict[bool, list[float]] = {True: [], False: []}
    for mine, theirs in zip(other.epochs, regular.epochs, strict=True):
        ratios[mine.pruned].append(mine.seconds / theirs.seconds)
    cost = sum(len(group) * statistics.median(group) for group in ratios.values() if group)
    return 100 * (1 - cost / len(other.epochs))
