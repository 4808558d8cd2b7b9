"""Scores that may find samples that are wrong: of counts, of last losses, and cleanlab's.

Each has shape (samples,), and the higher it is the more wrong a sample looks.
"""

import numpy as np
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores

from benchmarks.study.judging import Found, auc, found, precision_at
from prunedata.findings.suspects import rates
from prunedata.types import Array, Floats, Mask

__all__ = ["Found", "auc", "by_cleanlab", "by_counts", "by_final_loss", "cleanlab_issues", "found", "precision_at"]


def by_counts(hits: Array, visits: Array, high: Array | None = None) -> Floats:
    """What ``prunedata suspects`` ranks by: the rates of a run."""
    return rates(hits, visits, high)


def by_final_loss(losses: Array) -> Floats:
    """Last loss of each sample, shape (samples,); one that was never seen (NaN) comes last."""
    return np.where(np.isnan(losses), -np.inf, np.asarray(losses, dtype=np.float64))


def by_cleanlab(labels: Array, probabilities: Array) -> Floats:
    """Cleanlab's label quality turned around, from the network's own probabilities, shape (samples, classes).

    Cleanlab asks for probabilities of networks that have not seen the sample. Those of the network that was trained
    on it, as here, cost nothing more; so do the counts.
    """
    return np.asarray(1 - get_label_quality_scores(labels, probabilities), dtype=np.float64)


def cleanlab_issues(labels: Array, probabilities: Array) -> Mask:
    """Samples that cleanlab calls wrong, shape (samples,)."""
    return np.asarray(find_label_issues(labels, probabilities, n_jobs=1), dtype=np.bool_)
