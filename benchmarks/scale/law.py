"""The law by which what was measured is carried on to other sizes: a fixed part, and so much a sample."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["LARGEST", "SMALLEST", "Law", "fit"]

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
