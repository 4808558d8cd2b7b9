"""Times measured side by side.

Each repeat runs all rivals in turn, so that a busy moment hits them alike.
"""

import gc
import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import prunedata
from benchmarks.common.commands import markdown

__all__ = ["Row", "alternate", "cpu", "machine", "made_on", "show_rows", "table"]


@dataclass(frozen=True)
class Row:
    """One thing measured.

    Attributes
    ----------
    part : str
        What was measured.
    samples, batch : int, int or None
        Size of the data set and of a batch.
    unit : str
        Of ``times`` and of the peers'.
    times : list of float
        One for each repeat.
    peers : dict of str to list of float
        What each peer took in the same repeats.
    goal : float, optional
        What the median should not exceed.
    """

    part: str
    samples: int
    batch: int | None
    unit: str
    times: list[float]
    peers: Mapping[str, list[float]] = field(default_factory=dict)
    goal: float | None = None

    def ratio(self, peer: str) -> float:
        """How many times as long the peer took: the median over the repeats."""
        return median(theirs / ours for ours, theirs in zip(self.times, self.peers[peer], strict=True))

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON can hold it."""
        return {
            "part": self.part,
            "samples": self.samples,
            "batch": self.batch,
            "unit": self.unit,
            "n": len(self.times),
            **_spread(self.times),
            "goal": self.goal,
            "peers": {name: {**_spread(times), "ratio": self.ratio(name)} for name, times in self.peers.items()},
        }

    def cells(self) -> list[str]:
        """The row of the table that :func:`table` makes."""
        return [
            self.part,
            f"{self.samples:,}",
            "" if self.batch is None else str(self.batch),
            f"**{_short(median(self.times))}** {self.unit}",
            f"{_short(min(self.times))} - {_short(max(self.times))}",
            str(len(self.times)),
            "" if self.goal is None else _short(self.goal),
            "; ".join(
                f"{name} {_short(median(times))} (x{_short(self.ratio(name))})" for name, times in self.peers.items()
            ),
        ]


def alternate(runs: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Run all in turn, ``repeats`` times after one turn to warm up, and return the times that each returned."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for turn in range(repeats + 1):
            for name, run in runs.items():
                took = run()
                if turn:
                    times[name].append(took)
    finally:
        if was_enabled:
            gc.enable()
    return times


def table(rows: Iterable[Row]) -> str:
    """A Markdown table of the rows; after a peer's median, in brackets, how many times as long as ours it took."""
    columns = ("part", "samples", "batch", "median", "min - max", "n", "goal", "peers in the same run")
    return markdown(columns, (row.cells() for row in rows))


def show_rows(rows: Sequence[Row], about: Mapping[str, str], as_json: bool) -> None:
    """Print the rows, and above them what they were measured on: a table, or one JSON object."""
    if as_json:
        print(json.dumps({"machine": about, "rows": [row.to_dict() for row in rows]}, indent=2))
    else:
        print(", ".join(f"{name} {value}" for name, value in about.items()), table(rows), sep="\n\n")


def machine(**more: str) -> dict[str, str]:
    """What the times were measured on, and with."""
    packages = {name: version(name) for name in ("numpy", "torch", "zarr")}
    return {
        "CPU": cpu(),
        "cores": str(os.cpu_count()),
        "threads": "1",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **packages,
        "prunedata": prunedata.__version__,
        **more,
    }


def made_on(*packages: str, threads: int | None = None) -> dict[str, Any]:
    """``hardware``, and the ``versions`` of Python and of packages, as recorded runs have them.

    ``threads`` is how many cores were used; None says all of them.
    """
    number = os.cpu_count()
    cores = (
        f"{number} cores, {platform.system()} {platform.machine()}"
        if threads is None
        else f"{threads} of {number} cores"
    )
    versions = {"python": platform.python_version(), **{name: version(name) for name in packages}}
    return {"hardware": f"{cpu()}, {cores}", "versions": versions}


def cpu() -> str:
    """Name the processor."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or "unknown"


def _spread(times: list[float]) -> dict[str, float]:
    return {"median": median(times), "min": min(times), "max": max(times)}


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
