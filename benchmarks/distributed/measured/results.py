"""Recorded runs of the three modes: a file of JSON lines for each command, each line with its seed and hardware."""

import json
from pathlib import Path
from typing import Any

__all__ = ["RESULTS", "Facts", "add", "mean_staleness", "read", "thinned"]

RESULTS = Path(__file__).parents[2] / "results" / "distributed"
"""Where they are recorded, if nobody says otherwise."""
POINTS = 50
"""Points of a curve that are kept."""

Facts = dict[str, Any]


def add(folder: Path, command: str, facts: Facts) -> None:
    """Record a run. One process at a time may do so."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = facts | {"curve": thinned(facts["curve"])} if "curve" in facts else facts
    with (folder / f"{command}.jsonl").open("a") as file:
        file.write(json.dumps(kept, separators=(",", ":")) + "\n")


def read(folder: Path, command: str) -> list[Facts]:
    """The runs of a command, in the order in which they were recorded."""
    file = folder / f"{command}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


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
