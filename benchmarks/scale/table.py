"""The recorded measurements as tables: by size, and by the law that carries them on to a billion samples."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.common.commands import markdown
from benchmarks.common.records import Facts

__all__ = ["LARGEST", "SMALLEST", "Law", "fit", "markdown_scale"]

SMALLEST, LARGEST = 10_000_000, 100_000_000
"""Sizes from here to there are fitted. Smaller ones fit into caches, and larger ones show how far the law holds."""


@dataclass(frozen=True)
class Law:
    """``fixed + each * samples``."""

    fixed: float
    each: float

    def at(self, samples: int) -> float:
        """What it says of so many samples."""
        return self.fixed + self.each * samples


def fit(values: Mapping[int, float]) -> Law | None:
    """The law that lies nearest to the values by size, as a share of each; None of fewer than two sizes to fit."""
    sizes = np.array([size for size in values if SMALLEST <= size <= LARGEST], dtype=np.float64)
    if sizes.size < 2:
        return None
    found = np.array([values[int(size)] for size in sizes])
    terms = np.stack([np.ones_like(sizes), sizes], axis=1) / found[:, None]
    fixed, each = np.linalg.lstsq(terms, np.ones_like(sizes), rcond=None)[0]
    return Law(float(fixed), float(each))


BILLION = 1_000_000_000
Figure = Callable[[Facts], float]


def _step(name: str, figure: str = "cpu_seconds") -> Figure:
    return lambda run: float(run["steps"][name][figure])


def _less(name: str, other: str) -> Figure:
    return lambda run: max(1e-9, _step(name)(run) - _step(other)(run))


def _most_memory(run: Facts) -> float:
    return float(max(step["peak_bytes"] for step in run["steps"].values()))


RUN: dict[str, Figure] = {
    "memory, most": _most_memory,
    "store": lambda run: float(run["store_bytes"]),
    "select": _step("select, pruned"),
    "order": _step("order, all"),
    "record": _less("record, all", "order, all"),
    "end of epoch": _less("end and commit, all", "commit, all"),
    "commit": _step("commit, all"),
    "resume": _step("resume"),
}
EXCHANGE: dict[str, Figure] = {
    "sent by a rank": _step("exchange, all", "sent_bytes"),
    "end of epoch, with exchange": _step("exchange, all"),
    "memory for it": _step("exchange, all", "peak_bytes"),
}
BYTES = ("memory, most", "store", "sent by a rank", "memory for it")
TITLES = {"dropping-count": "`DroppingCount`", "running-loss": "`RunningLoss`", "exchange": "Two ranks"}


def markdown_scale(results: Sequence[Facts]) -> str:
    """A table for each policy, and one for two ranks, in Markdown."""
    parts = []
    for kind, title in TITLES.items():
        runs = {run["samples"]: run for run in results if run["kind"] == kind}
        if runs:
            about = f"Measured on {', '.join(sorted({run['hardware'] for run in runs.values()}))}."
            parts += [f"### {title}", about, _table(runs, EXCHANGE if kind == "exchange" else RUN)]
    return "\n\n".join(parts)


def _table(runs: dict[int, Facts], figures: dict[str, Figure]) -> str:
    rows = []
    for samples in sorted(runs):
        rows.append([f"{samples:,}", *(_told(name, figure(runs[samples])) for name, figure in figures.items())])
    laws = {name: fit({size: figure(run) for size, run in runs.items()}) for name, figure in figures.items()}
    each = [_each(name, law.each) if law else "" for name, law in laws.items()]
    carried = [_told(name, law.at(BILLION)) if law else "" for name, law in laws.items()]
    rows += [["a sample, by the law", *each], [f"{BILLION:,}, by the law", *carried]]
    return markdown(("samples", *figures), rows)


def _told(name: str, value: float) -> str:
    if name in BYTES:
        return f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.1f} MB"
    return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s" if value >= 0.1 else f"{1e3 * value:.1f} ms"


def _each(name: str, value: float) -> str:
    return f"{value:.2f} bytes" if name in BYTES else f"{1e9 * value:.1f} ns"
