"""How the learning rate goes over a run."""

import math
from collections.abc import Callable

__all__ = ["RATES"]

WARM, HIGH = 0.1, 3.0
"""A warm-up takes so much of the run, and ends so many times as high."""


def _cosine(progress: float) -> float:
    return (1 + math.cos(math.pi * progress)) / 2


def _step(progress: float) -> float:
    return float(0.1 ** ((progress >= 0.5) + (progress >= 0.75)))


def _warm(progress: float) -> float:
    return HIGH * min(progress / WARM, _cosine(max(0.0, progress - WARM) / (1 - WARM)))


RATES: dict[str, Callable[[float], float]] = {
    "cosine": _cosine,
    "step": _step,
    "constant": lambda progress: 1.0,
    "warm": _warm,
}
"""By name: called with how much of the run is over, from 0 to 1; returns what the rate is multiplied by."""
