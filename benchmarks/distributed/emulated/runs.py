"""Which runs are made on the emulated cluster, and what each of them emulates."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.distributed.cluster import STUDY, Configuration
from benchmarks.distributed.training.task import Training

__all__ = ["NOMINAL", "PARAMETERS", "RUNS", "SOFTWARE", "Emulated", "runs_to_make"]

PARAMETERS = 1_298_342
"""A twentieth of those of ResNet-50 with 1,200 outputs. Links are a twentieth, too: an exchange lasts as long."""
NOMINAL = 7.5
"""Gigabytes a second of the study's links: 56 Gb/s, and a little more as the issue of the study counts it."""
SOFTWARE = STUDY.bandwidth / 1e9
"""Gigabytes a second that came through the study's software, by the model."""
STEPS = 8
"""Of each worker in an epoch."""
STRETCH = 4.0
ONE, FOUR, EIGHT = Configuration(1), Configuration(4, 3), Configuration(8, 7)
STUDYS = Configuration(2, 1), Configuration(4, 1), FOUR, EIGHT, Configuration(4, 3, "dedicated")


@dataclass(frozen=True)
class Emulated:
    """A run on the emulated cluster.

    Attributes
    ----------
    group : str
        What it is measured for: one of :data:`RUNS`.
    training : Training
        With its devices' time, its stretch and its parameters.
    gigabytes : float
        A second of each node's link, each way, on the cluster that is emulated.
    samples : int
    """

    group: str
    training: Training
    gigabytes: float
    samples: int

    @property
    def shrink(self) -> float:
        """By how much gradients and links are smaller than the study's."""
        return STUDY.gradient_bytes / 4 / (self.training.parameters or PARAMETERS)

    @property
    def rate(self) -> str:
        """Of each link here, as ``tc`` takes it."""
        return f"{round(8e9 * self.gigabytes / self.shrink / self.training.stretch)}bit"


def mixed(
    group: str, one: Configuration, gigabytes: float = NOMINAL, stretch: float = STRETCH, **other: Any
) -> Emulated:
    """A row of the study: each node has four replicas of 32 images."""
    training = Training(
        mode="mixed" if one.servers else "sync",
        workers=one.workers,
        replicas=STUDY.replicas,
        servers=max(1, one.servers),
        placement=one.placement,
        epochs=1,
        batch=STUDY.replica_batch,
        device_time=round(STUDY.device_seconds, 4),
        stretch=stretch,
        parameters=PARAMETERS,
    )
    made = replace(training, **other)
    return Emulated(group, made, gigabytes, STEPS * made.batch * made.replicas * made.workers)


def whole(
    group: str, one: Configuration, gigabytes: float = NOMINAL, stretch: float = STRETCH, **other: Any
) -> Emulated:
    """The same with a process for each node in place of four: as long a step, and as many images."""
    node = {
        "mode": "async" if one.servers else "sync",
        "replicas": 1,
        "batch": STUDY.batch,
        "device_time": round(STUDY.device_seconds / STUDY.replicas, 5),
    }
    return mixed(group, one, gigabytes, stretch, **(node | other))


def _loss() -> Iterator[Emulated]:
    """Table 3: all nodes train on digits, in batches of 32, until they have seen them as often."""
    for seed in range(3):
        for nodes in (1, 2, 4, 8):
            given: dict[str, Any] = {"stretch": 2.0, "epochs": 4, "batch": 32, "device_time": 0.005, "seed": seed}
            yield replace(whole("loss", Configuration(nodes, nodes - 1), **given), samples=1408)


def _straggler() -> Iterator[Emulated]:
    """Four nodes, of which one takes half as long again."""
    slow = 3, round(STUDY.compute_seconds / 2, 3)
    for backup in (0, 1):
        yield whole("straggler", FOUR, mode="sync", backup=backup, slow=slow)
    yield whole("straggler", FOUR, slow=slow)


LOCAL: tuple[dict[str, Any], ...] = ({}, {"mode": "local", "local_steps": 1}, {"mode": "local", "local_steps": 4})
RUNS: dict[str, list[Emulated]] = {
    "tables": [mixed("tables", one) for one in (ONE, *STUDYS)],
    "spread": [mixed("spread", one, seed=seed) for seed in (1, 2) for one in (ONE, FOUR, EIGHT)],
    "software": [mixed("software", one, SOFTWARE) for one in STUDYS],
    "replicas": [mixed("replicas", ONE, replicas=count) for count in (1, 2, 3)],
    "stretch": [whole("stretch", one, stretch=k) for k in (1.0, 2.0, 4.0) for one in (ONE, FOUR, EIGHT)],
    "local": [whole("local", one, SOFTWARE, **own) for own in LOCAL for one in (FOUR, EIGHT)],
    "straggler": list(_straggler()),
    "overlap": [whole("overlap", one, rate, overlap=True) for rate in (NOMINAL, SOFTWARE) for one in (FOUR, EIGHT)],
    "rates": [whole("rates", one, rate) for rate in (25 / 8, 100 / 8) for one in (FOUR, EIGHT)],
    "pruned": [
        whole("pruned", one, stretch=2.0, epochs=3, prune=prune) for one in (ONE, FOUR, EIGHT) for prune in (0.0, 0.3)
    ],
    "loss": list(_loss()),
}
"""All runs, by what they are measured for."""


def runs_to_make(groups: Sequence[str]) -> list[Emulated]:
    """All runs of some groups."""
    return [run for group in groups for run in RUNS[group]]
