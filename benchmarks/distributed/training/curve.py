"""What a run leaves: its losses over time, and the facts that are recorded of it."""

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.common.data import Data
from benchmarks.common.timing import made_on
from benchmarks.distributed.training.parts import PARTS
from benchmarks.distributed.training.task import Training

__all__ = ["Told", "facts_of", "reached"]

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
