"""The commands that train and record: ``throughput`` and ``converge``."""

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.common.data import Data
from benchmarks.common.processes.on_ray import on_ray
from benchmarks.common.processes.ranks import RankFailed
from benchmarks.common.records import Runs
from benchmarks.distributed.measured.results import Facts, add, mean_staleness
from benchmarks.distributed.training import train
from benchmarks.distributed.training.in_step import launched
from benchmarks.distributed.training.replica import Checkpoint
from benchmarks.distributed.training.task import Training, reached
from prunedata.errors import DealerDied

__all__ = ["Killing", "converge", "is_first", "kill", "kills", "run", "with_nodes"]

BEFORE = "done before the kill"


@dataclass
class Killing:
    """What came of all cases.

    Attributes
    ----------
    killed : dict of str to int
        How often which process was.
    ends : dict of str to int
        How often a run ended how: with an error of which type, without a worker, or before the kill.
    slowest : float
        Seconds from a kill to its error, at most.
    wrong : list of str
        What must not come: a run that went on otherwise than one without a kill, an error that names nobody, or one
        that came later than the time that was given.
    """

    killed: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    wrong: list[str] = field(default_factory=list)


def kills(training: Training, data: Data, cases: int) -> Facts:
    """Kill a process of each of so many runs, and return what came of it. ``async`` and ``mixed`` need Ray to run."""
    chance, found = random.Random(training.seed), Killing()
    with TemporaryDirectory() as folder:
        whole = train(training, data, Path(folder) / "whole")
        span = whole["seconds"]
        for case in range(cases):
            file = Path(folder) / str(case)
            name, ended, seconds = _one(training, data, file, chance, span)
            found.slowest = max(found.slowest, seconds)
            span *= 0.8 if ended == BEFORE else 1  # a first run may be slower than those after it
            found.killed[name] += 1
            found.ends[ended] += 1
            told = _check(training, data, file, whole, Path(folder) / "whole")
            if told or ended.startswith("unclear") or seconds > training.within:
                found.wrong.append(f"case {case}, {name}: {ended}; {told}")
            print(f"{case}: {name}, {ended} {told}", file=sys.stderr, flush=True)
    kept = ("hardware", "versions", "samples", "data")
    return {**asdict(training), **{one: whole[one] for one in kept}, "cases": cases, **vars(found)}


def _one(training: Training, data: Data, file: Path, chance: random.Random, seconds: float) -> tuple[str, str, float]:
    """Train, and kill meanwhile. Return whom, how the run ended, and the seconds from the kill to an error."""
    chosen: list[str] = []
    timers: list[threading.Timer] = []
    after, killed = 0.0, [float("inf")]

    def started(processes: dict[str, int]) -> None:
        name = chance.choice(sorted(processes))
        chosen.append(name)
        timers.append(threading.Timer(chance.uniform(0, seconds), _kill, (processes[name], killed)))
        timers[0].start()

    try:
        facts = train(training, data, file, started)
        ended = f"without {len(facts['workers_lost'])} of its workers" if facts.get("workers_lost") else BEFORE
    except (RankFailed, DealerDied, ConnectionError) as error:
        after = max(0.0, time.monotonic() - killed[-1])
        known = chosen[0].replace("server", "parameter server")
        ended = type(error).__name__ if known in str(error) else f"unclear {type(error).__name__}: {error}"
    finally:
        timers[0].cancel()
    return chosen[0], ended, after


def _kill(process: int, when: list[float]) -> None:
    when.append(time.monotonic())
    with suppress(ProcessLookupError):  # it was done before
        os.kill(process, signal.SIGKILL)


def _check(training: Training, data: Data, file: Path, whole: Facts, expected: Path) -> str:
    """Go on with a run, and say what is wrong with it, if anything is."""
    again = train(training, data, file)
    if again["visits"] != whole["visits"]:
        return f"visits {again['visits']}"
    if training.mode != "sync":
        return ""
    same: Callable[[Any], bytes] = lambda held: held.weights.tobytes() + held.average.tobytes()  # noqa: E731
    return "" if same(Checkpoint.load(file)) == same(Checkpoint.load(expected)) else "other weights"


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
