"""Scores that may find samples that are wrong: of counts, and cleanlab's.

Each has shape (samples,), and the higher it is the more wrong a sample looks.
"""

import numpy as np
from cleanlab.rank import get_label_quality_scores

from benchmarks.study.judging import Found, auc, found, precision_at, rates
from prunedata.types import Array, Floats

__all__ = ["Found", "auc", "by_cleanlab", "by_counts", "found", "precision_at"]


def by_counts(hits: Array, visits: Array, high: Array | None = None) -> Floats:
    """The rates of a run, which are counts alone."""
    return rates(hits, visits, high)


def by_cleanlab(labels: Array, probabilities: Array) -> Floats:
    """Cleanlab's label quality turned around, from the network's own probabilities, shape (samples, classes).

    Cleanlab asks for probabilities of networks that have not seen the sample. Those of the network that was trained
    on it, as here, cost nothing more; so do the counts.
    """
    return np.asarray(1 - get_label_quality_scores(labels, probabilities), dtype=np.float64)
