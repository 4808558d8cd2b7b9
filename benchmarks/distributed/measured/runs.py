"""The commands that train and record: ``throughput`` and ``converge``."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.common.data import Data
from benchmarks.common.processes.on_ray import on_ray
from benchmarks.common.records import Runs
from benchmarks.distributed.measured.kills import kills
from benchmarks.distributed.measured.results import Facts, add, mean_staleness
from benchmarks.distributed.training.in_step import launched
from benchmarks.distributed.training.modes import train
from benchmarks.distributed.training.task import Training, reached

__all__ = ["converge", "is_first", "kill", "run", "with_nodes"]


@contextmanager
def _engine(training: Training) -> Iterator[None]:
    """Ray, if the mode needs it."""
    if not training.served:
        yield
    else:
        with on_ray():
            yield


def is_first(training: Training, command: str) -> bool:
    """Whether this process prints and records: of those that torchrun started, the first.

    Raises :class:`ValueError` if the launcher's processes cannot run the command.
    """
    if not launched():
        return True
    if training.served or command not in ("train", "throughput"):
        raise ValueError(
            f"Expected train or throughput with --mode sync under torchrun. Got {command} with {training.mode}, which "
            "starts its own processes: run it without torchrun."
        )
    return os.environ["RANK"] == "0"


def run(training: Training, data: Data, record: str | None, recorded: Runs, checkpoint: Path | None = None) -> Facts:
    """Train, record the run if asked to, and return its facts."""
    with _engine(training):
        facts = train(training, data, checkpoint)
    if record is not None:
        add(recorded, record if training.backup is None else "backup", facts)
    return facts


def kill(training: Training, data: Data, cases: int, recorded: Runs) -> Facts:
    """Kill processes of runs, record what came of it, and return it."""
    with _engine(training):
        facts = kills(training, data, cases)
    add(recorded, "kills", facts)
    return facts


def with_nodes(training: Training, nodes: int) -> Training:
    """The study's best configuration of so many nodes: all of them train, and all but one also serve.

    A single node has no servers. Its replicas average their gradients, as in ``sync``.
    """
    if nodes == 1:
        return replace(training, mode="sync", workers=1, backup=None)
    many = replace(training, workers=nodes, servers=nodes - 1, placement="shared")
    return replace(many, mode="mixed") if training.replicas > 1 else replace(many, mode="async")


def converge(training: Training, data: Data, nodes: Iterable[int], target: float, recorded: Runs) -> list[Facts]:
    """Train with each number of nodes, and record when the loss was reached."""
    found = []
    for number in nodes:
        one = with_nodes(training, number)
        facts = run(one, data, None, recorded)
        facts |= {"target_loss": target, "seconds_to_target": reached(facts["curve"], target)}
        add(recorded, "converge", facts)
        told = {name: facts[name] for name in ("seconds_to_target", "accuracy", "updates")}
        print(f"{number} nodes: {told}, mean staleness {mean_staleness(facts)}", file=sys.stderr)
        found.append(facts)
    return found
