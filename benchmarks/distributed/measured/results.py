"""Recorded runs of the three modes: a part for each command, each run with its seed and hardware."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.common.records import Facts, Runs
from benchmarks.distributed.cluster import Configuration
from benchmarks.distributed.tables import ALONE
from benchmarks.distributed.training.task import MODES, Training

__all__ = ["REPLICAS", "RESULTS", "Facts", "add", "mean_staleness", "name_of", "read", "setup_of", "thinned"]

RESULTS = Runs(Path(__file__).parents[1] / "results.jsonl.bz2")
"""Where they are recorded, if nobody says otherwise."""
POINTS = 50
"""Points of a curve that are kept."""
OTHER = ("mode", "workers", "replicas", "seed", "within")
"""Of a task, what the name of a run has anyway, or doesn't need."""
REPLICAS = 4
"""In each node, of the runs in Tables 1 and 2."""


def add(recorded: Runs, command: str, facts: Facts) -> None:
    """Record a run of a command, in place of one of the same task and seed."""
    kept = {name: value for name, value in facts.items() if name != "rounds"}
    if "curve" in facts:
        kept["curve"] = thinned(facts["curve"])
    name = name_of(facts)
    recorded.add(f"{command}/{name}", {"kind": command, "name": name, **kept})


def name_of(facts: Facts) -> str:
    """Tells a run from every other: all that isn't as usual."""
    usual, told = asdict(Training()), [f"{facts['mode']}-{facts['workers']}x{facts['replicas']}"]
    for name in (*usual, "data", "samples", "target_loss", "group", "gigabytes"):
        value = facts.get(name)
        if name not in OTHER and value != usual.get(name):
            told.append(f"{name}={':'.join(map(str, value)) if isinstance(value, tuple | list) else value}")
    return "-".join([*told, f"seed{facts['seed']}"])


def read(recorded: Runs, command: str) -> list[Facts]:
    """The runs of a command, in the order of the tables: those that don't prune first, then by mode and size."""
    return sorted(recorded.read(command), key=_place)


def _place(facts: Facts) -> tuple[Any, ...]:
    first = facts["overlap"], facts["prune"], MODES.index(facts["mode"]), facts["workers"], facts["replicas"]
    slow = tuple(facts["slow"] or ())
    return (*first, facts["backup"] or 0, slow, facts["placement"], facts["servers"], facts["seed"])


def mean_staleness(facts: Facts) -> float | None:
    """Updates between the weights that made a gradient and those that got it, on average; None without servers."""
    counts = [(int(stale), times) for server in facts["staleness"] for stale, times in server.items()]
    total = sum(times for _, times in counts)
    return sum(stale * times for stale, times in counts) / total if total else None


def thinned(curve: list[list[float]]) -> list[list[float]]:
    """At most 50 points: of as many updates in a row each, the last time and the mean loss."""
    size = -(-len(curve) // POINTS)
    groups = [curve[first : first + size] for first in range(0, len(curve), size or 1)]
    return [[group[-1][0], round(sum(loss for _, loss in group) / len(group), 4)] for group in groups]


def setup_of(facts: Facts) -> Configuration:
    """As the study counts: one node that trains alone has no servers."""
    if facts["mode"] == "sync" and facts["backup"] is None:
        return ALONE
    return Configuration(facts["workers"], facts["servers"], facts["placement"])
