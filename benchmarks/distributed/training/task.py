"""What is trained, how, and by how many: all that the processes of a run have to know alike."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any, Literal

import torch
from torch import nn

from benchmarks.common.data import Data, ImageSet
from benchmarks.common.networks import build
from benchmarks.common.timing import made_on
from prunedata import Pruner, Schedule
from prunedata.cli.arguments import named_object
from prunedata.policies import Policy
from prunedata.policies.rules import BUILT_IN

__all__ = ["MODES", "PARTS", "PLACEMENTS", "Parts", "Told", "Training", "facts_of", "fewer", "reached"]

MODES = ("sync", "async", "mixed", "local")
PLACEMENTS = ("shared", "dedicated")


@dataclass(frozen=True)
class Training:
    """What is trained, how, and by how many.

    Attributes
    ----------
    mode : "sync", "async", "mixed" or "local"
        All replicas average their gradients in each step; or each worker goes at its own pace; or the replicas of a
        worker average theirs, and workers go at their own pace; or workers make some steps of their own, and then
        average what those changed.
    workers : int
        The study's nodes: each has a model, and in ``async`` and ``mixed`` pushes one gradient a step.
    replicas : int
        Of each worker. In ``sync`` workers times replicas train together; in ``async`` it is 1.
    servers : int
        Parameter servers, each with a part of the weights. ``sync`` has none.
    placement : "shared" or "dedicated"
        Whether servers run on nodes that train, or on nodes of their own.
    epochs : int
    batch : int
        Samples of a replica at a time.
    network : str
        One of :data:`benchmarks.common.networks.NETWORKS`.
    outputs : int, optional
        The network's, at least as many as there are classes; by default as many.
    augment : bool
        Crop and mirror images at random, on the CPU, while the step before is computed.
    prune : float
        Share of the samples that pruned epochs leave out; 0 trains regularly.
    policy : str
        One of the library's own by its name, or ``module:object`` or ``script.py:object``.
    weights : str, optional
        File of a ``state_dict`` to start from, as ``torch.save`` writes it.
    learning_rate : float
        Of RMSProp; the default is the study's, as its decay, epsilon and weight decay are.
    overlap : bool
        In ``async`` and ``mixed``, let a gradient travel while the next one is computed: staler by its own update.
    backup : int, optional
        Of ``sync``: let parameter servers update when all but so many replicas have sent their gradients, and drop
        those that come later. Their losses are observed all the same. By default there are no servers.
    slow : (int, float), optional
        A replica, counted over all workers, and the seconds by which each of its steps is slowed on purpose.
    device_time : float
        Seconds that an emulated device takes for an image: so long a step of a replica lasts, asleep. 0: no emulation.
    stretch : float
        By how much emulated devices are slower than they say. Links have to be slowed as much: then what the processor
        costs matters so many times less.
    parameters : int, optional
        Weights in all, with ballast behind those of the network. All of them are moved, averaged and updated.
    local_steps : int
        Of ``local``: steps that a worker makes between two averages. Bytes fall by as much.
    seed : int
    within : float
        Seconds after which a process that waits for another one gives up.
    """

    mode: Literal["sync", "async", "mixed", "local"] = "async"
    workers: int = 2
    replicas: int = 1
    servers: int = 1
    placement: Literal["shared", "dedicated"] = "shared"
    epochs: int = 6
    batch: int = 32
    network: str = "lenet"
    outputs: int | None = None
    augment: bool = False
    prune: float = 0.0
    policy: str = "DroppingCount"
    weights: str | None = None
    learning_rate: float = 0.1
    overlap: bool = False
    backup: int | None = None
    slow: tuple[int, float] | None = None
    device_time: float = 0.0
    stretch: float = 1.0
    parameters: int | None = None
    local_steps: int = 8
    seed: int = 0
    within: float = 60.0

    def __post_init__(self) -> None:
        if self.mode not in MODES or self.placement not in PLACEMENTS:
            raise ValueError(f"Expected a mode of {MODES} and a placement of {PLACEMENTS}. Got {self}.")
        if self.mode == "async" and self.replicas != 1:
            raise ValueError(f"Expected one replica for each worker in async. Got {self.replicas}: that is mixed.")
        if self.mode in ("sync", "local") and self.overlap:
            raise ValueError(
                f"Expected overlap in async or mixed. Got {self.mode}, where each exchange needs the one before."
            )
        if self.local_steps < 1:
            raise ValueError(f"Expected at least one local step. Got {self.local_steps}.")
        if self.backup is not None and not (self.mode == "sync" and 0 <= self.backup < self.workers * self.replicas):
            raise ValueError(f"Expected fewer backups than replicas, and mode sync. Got {self}.")
        if self.device_time < 0 or self.stretch <= 0:
            raise ValueError(f"Expected a device time of 0 or more, and a stretch above 0. Got {self}.")

    @property
    def served(self) -> bool:
        """Whether there are parameter servers."""
        return self.mode != "sync" or self.backup is not None

    @property
    def waits(self) -> bool:
        """Whether the servers wait for several workers before they update."""
        return self.mode == "local" or self.backup is not None

    @property
    def nodes(self) -> int:
        """How many push gradients to the servers."""
        return self.workers if self.mode != "sync" else self.workers * self.replicas

    @property
    def team(self) -> int:
        """Replicas that average their gradients among themselves, before any server does."""
        if self.mode == "sync":
            return 1 if self.served else self.workers * self.replicas
        return self.replicas

    @property
    def team_batch(self) -> int:
        """Samples of one update."""
        return self.team * self.batch

    def build(self, data: Data) -> nn.Module:
        """The network as it starts: the same in every process."""
        torch.set_num_threads(1)
        torch.manual_seed(self.seed)
        if self.outputs is not None and self.outputs < data.classes:
            raise ValueError(f"Expected at least {data.classes} outputs, one for each class. Got {self.outputs}.")
        model = build(self.network, data.channels, self.outputs or data.classes)
        if self.weights is not None:
            model.load_state_dict(torch.load(self.weights, weights_only=True))
        return model

    def pruner(self, samples: int, classes: int) -> Pruner:
        """The run's pruner. It prunes nothing if the task trains regularly."""
        return Pruner(
            samples,
            Schedule.steady(self.epochs),
            prune=self.prune or 0,
            policy=_policy(self.policy),
            seed=self.seed,
            leave_out="delivery" if self.prune else "nothing",
            classes=classes,
        )


def _policy(named: str) -> Policy:
    if named in BUILT_IN:
        return BUILT_IN[named]()
    if ":" not in named:
        raise ValueError(f"Expected a policy of {', '.join(BUILT_IN)}, or module:object. Got {named}.")
    found = named_object(named)
    policy: Policy = found() if isinstance(found, type) else found
    return policy


def fewer(data: Data, train: int | None, test: int | None) -> Data:
    """The same data with the first few of its samples."""
    return Data(data.name, _first(data.train, train), _first(data.test, test), data.channels, data.classes)


def _first(images: ImageSet, samples: int | None) -> ImageSet:
    return ImageSet(images.images[:samples].clone(), images.labels[:samples].clone(), images.mean, images.std)


PARTS = {
    "wait": "waits for a batch",
    "forward": "forward",
    "backward": "backward",
    "device": "sleeps for what an emulated device still takes",
    "average": "averages gradients with its replicas",
    "exchange": "exchanges with servers",
    "update": "updates weights",
    "pruning": "reports losses, ends epochs",
    "data": "makes batches, beside",
    "dealing": "asks for batches, beside",
}
"""What the parts are. The last two run in a thread of their own, while the step before is computed."""


class Parts:
    """Seconds by part. Each part is timed by one thread only."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Add what is done within to a part."""
        since = perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += perf_counter() - since


SMOOTH = 10
"""Updates whose losses are averaged, to say when a loss was reached."""


@dataclass
class Told:
    """What a worker tells when it is done.

    Attributes
    ----------
    curve : list of (float, float, int)
        When each update was made, in seconds of ``time.time``; the mean loss of its samples; and how many they were.
    parts : dict of str to float
        Seconds, by part.
    buffers : list of Tensor
        Batch norm's.
    rounds : list of (int, list of (int, int))
        Of ``local``: the version of the weights that each round began with, and the epochs and numbers of its batches.
    """

    curve: list[tuple[float, float, int]] = field(default_factory=list)
    parts: dict[str, float] = field(default_factory=dict)
    buffers: list[Any] = field(default_factory=list)
    rounds: list[tuple[int, list[tuple[int, int]]]] = field(default_factory=list)


def facts_of(task: Training, data: Data, visits: list[int], told: Iterable[Told], **more: Any) -> dict[str, Any]:
    """What is recorded of a run: plain values. Seconds begin with the first batch, and end with the last update."""
    workers = list(told)
    curve = sorted(point for one in workers for point in one.curve)
    begun = more.pop("started")
    # A run that was done already makes no update.
    seconds, updates = curve[-1][0] - begun if curve else 0.0, max(1, len(curve))
    images = sum(size for _, _, size in curve)
    return {
        **asdict(task),
        "data": data.name,
        "samples": len(data.train),
        "visits": visits,
        "seconds": seconds,
        "images_per_second": images / seconds if curve else 0.0,
        "updates": len(curve),
        "parts": {part: sum(one.parts[part] for one in workers) / updates for part in PARTS},
        "curve": [[round(when - begun, 4), round(loss, 5)] for when, loss, _ in curve],
        **more,
        "load": round(os.getloadavg()[0], 2),  # of this machine, when it was done
        **made_on("torch", "numpy"),
    }


def reached(curve: list[list[float]], loss: float) -> float | None:
    """Seconds until the mean loss of ten updates in a row was as low; None if it never was."""
    for last in range(SMOOTH, len(curve) + 1):
        some = curve[last - SMOOTH : last]
        if sum(one for _, one in some) / SMOOTH <= loss:
            return some[-1][0]
    return None
