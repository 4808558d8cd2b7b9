"""The runs on the emulated cluster: what each of them emulates, how it is made, and what is read of those recorded."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common.records import Runs
from benchmarks.distributed.cluster import STUDY, Configuration
from benchmarks.distributed.hosts import PORT, Hosts, address, hosts
from benchmarks.distributed.measured.results import Facts, add, name_of, read
from benchmarks.distributed.training.task import Training

__all__ = [
    "KIND", "NOMINAL", "PARAMETERS", "RUNS", "SOFTWARE", "Emulated", "as_arguments", "caption", "measure", "middle",
    "runs_of", "runs_to_make", "spread",
]  # fmt: skip


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


KIND = "emulated"
STORE_BYTES = 256 << 20
"""Of each node's object store: there are many nodes on this machine."""
LONGEST = 600.0
"""Seconds in which a run has to be done."""


def measure(runs: Iterable[Emulated], recorded: Runs, data: Path | None) -> int:
    """Make those runs that are not recorded yet; return how many failed."""
    done = {run["name"] for run in read(recorded, KIND)}
    named = "digits" if data is None else data.resolve().name
    missing = [run for run in runs if name_of(_about(run) | {"data": named}) not in done]
    if not missing:
        return 0
    failed = 0
    nodes = max(max(2, run.training.workers + _own_nodes(run.training)) for run in missing)
    with hosts(nodes, missing[0].rate, store_bytes=STORE_BYTES) as made:
        for run in missing:
            made.limit(run.rate)
            try:
                facts = _one(run, made, data)
            except (subprocess.SubprocessError, json.JSONDecodeError) as error:
                failed += 1
                print(f"{run}: {error}", file=sys.stderr, flush=True)
                continue
            add(recorded, KIND, facts)
            rate = facts["images_per_second"] * run.training.stretch
            print(f"{name_of(facts)}: {rate:.1f} images/s, load {facts['load']}", file=sys.stderr, flush=True)
    return failed


def _own_nodes(training: Training) -> int:
    return training.servers if training.placement == "dedicated" else 0


def _one(run: Emulated, made: Hosts, data: Path | None) -> Facts:
    """Make a run on the hosts, and return its facts."""
    command = [sys.executable, "-m", "benchmarks.distributed", "train", *as_arguments(run.training)]
    command += ["--samples", str(run.samples), *([] if data is None else ["--data", str(data)])]
    before = [made.bytes(host) for host in range(len(made.names))]
    with made.start(0, command, RAY_ADDRESS=f"{address(0)}:{PORT}") as process:
        try:
            printed = process.communicate(timeout=LONGEST)[0]
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    after = [made.bytes(host) for host in range(len(made.names))]
    sent = [late[0] - early[0] for early, late in zip(before, after, strict=True)]
    facts: Facts = json.loads(printed) | _about(run) | {"sent": sent}
    return facts


def _about(run: Emulated) -> Facts:
    """What is emulated, and how: plain values."""
    training = run.training
    return {
        **json.loads(json.dumps(asdict(training))),
        "samples": run.samples,
        "group": run.group,
        "gigabytes": run.gigabytes,
        "shrink": round(run.shrink, 3),
        "emulated": f"devices sleep {1000 * training.device_time:g} ms an image, {training.stretch:g} times as long; "
        f"{training.parameters:,} weights for {round(run.shrink * (training.parameters or 0)):,}; nodes are network "
        f"namespaces, whose links tbf limits to {run.rate} for {run.gigabytes:g} GB/s",
    }


def as_arguments(training: Training) -> Sequence[str]:
    """What to give to the command ``train`` for a task: all that isn't as usual."""
    told = ["--mode", training.mode]
    for field in fields(Training):
        value = getattr(training, field.name)
        if field.name == "mode" or value == field.default:
            continue
        told.append("--" + field.name.replace("_", "-"))
        if not isinstance(value, bool):
            told.append(":".join(map(str, value)) if isinstance(value, tuple) else str(value))
    return told


def runs_of(recorded: Runs, *groups: str) -> list[Facts]:
    """The runs of some groups. Their times are divided by their stretch, so those of several stretches compare."""
    return [_unstretched(run) for run in read(recorded, "emulated") if run["group"] in groups]


def _unstretched(run: Facts) -> Facts:
    by = run["stretch"]
    return run | {
        "images_per_second": run["images_per_second"] * by,
        "seconds": run["seconds"] / by,
        "parts": {part: seconds / by for part, seconds in run["parts"].items()},
        "curve": [[when / by, loss] for when, loss in run["curve"]],
    }


def middle(runs: Iterable[Facts], of: Callable[[Facts], float] = lambda run: run["images_per_second"]) -> float | None:
    """The median over runs; None if there is none."""
    found = [of(run) for run in runs]
    return median(found) if found else None


def spread(runs: Sequence[Facts], alone: float, digits: int = 2) -> str:
    """The least and the largest speedup of several runs."""
    found = sorted(run["images_per_second"] / alone for run in runs)
    return "-" if len(found) < 2 else f"{found[0]:.{digits}f} - {found[-1]:.{digits}f}"


def caption(runs: Sequence[Facts]) -> str:
    """What was emulated, and on what it was measured, in a few sentences."""
    if not runs:
        return "Nothing was recorded yet."
    one, loads = runs[0], sorted(run["load"] for run in runs)
    devices = sorted({f"{1000 * run['device_time']:g} ms" for run in runs}, reverse=True)
    stretches = ", ".join(f"{by:g}" for by in sorted({run["stretch"] for run in runs}))
    links = ", ".join(f"{rate:.3g} GB/s" for rate in sorted({run["gigabytes"] for run in runs}, reverse=True))
    kind = {NOMINAL: ", those of the study's links"}.get(one["gigabytes"], "") if len(links) < 9 else ""
    return (
        f"Emulated: each device sleeps {' or '.join(devices)} an image, times the stretch of {stretches}. Nodes are "
        f"network namespaces, their links limited by `tbf` to {links}{kind}, over stretch and {one['shrink']:.3g}: "
        f"{one['parameters']:,} weights stand for {STUDY.gradient_bytes / 4:,.0f}. Real: the software, those weights "
        f"and gradients, and the losses ({one['network']} on {', '.join(sorted({run['data'] for run in runs}))}). "
        f"Seeds {', '.join(map(str, sorted({run['seed'] for run in runs})))}. On {one['hardware']}, torch "
        f"{one['versions']['torch']}, beside other work: load average {loads[0]:.0f} to {loads[-1]:.0f}."
    )
