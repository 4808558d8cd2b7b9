"""How well scores find samples that are known to be wrong.

A score has shape (samples,), and the higher it is the more wrong a sample looks. Ties are never decided by the order
of the samples: those that tie at an edge share what is left of the top.
"""

from dataclasses import asdict, dataclass

import numpy as np

from prunedata.findings.compare import average_ranks, membership
from prunedata.types import Array, Floats, Mask

__all__ = ["Found", "auc", "found", "precision_at", "rates"]


@dataclass(frozen=True)
class Found:
    """What a score finds: AUC, and precision at the top 100, the top tenth, and as many as are wrong."""

    auc: float | None
    precision_at_100: float
    precision_at_tenth: float
    precision_at_wrong: float

    def to_dict(self) -> dict[str, float | None]:
        return asdict(self)


def rates(hits: Array, visits: Array, high: Array | None = None) -> Floats:
    """The share of a sample's visits with a high loss, shape (samples,), from 0 to 1; 0 where it was never visited.

    Hits over visits; or if `high` is known, the mean of this and of `high` over visits.
    """
    counted = [hits] if high is None else [hits, high]
    seen = np.sum([np.asarray(array, dtype=np.int64) for array in counted], axis=0)
    return np.asarray(seen / (len(counted) * np.maximum(np.asarray(visits, dtype=np.int64), 1)), dtype=np.float64)


def found(scores: Array, wrong: Mask) -> Found:
    """Judge `scores`, both of shape (samples,)."""
    scores, wrong = _checked(scores, wrong)
    return Found(
        auc(scores, wrong),
        precision_at(scores, wrong, min(100, wrong.size)),
        precision_at(scores, wrong, max(1, wrong.size // 10)),
        precision_at(scores, wrong, max(1, int(wrong.sum()))),
    )


def precision_at(scores: Array, wrong: Mask, top: int) -> float:
    """Share of the `top` highest scores that are wrong; of the samples that tie at the edge, what to expect."""
    scores, wrong = _checked(scores, wrong)
    if not 1 <= top <= scores.size:
        raise ValueError(f"Expected top from 1 to the {scores.size} samples. Got {top}.")
    return float(membership(scores, top)[wrong].sum() / top)


def auc(scores: Array, wrong: Mask) -> float | None:
    """Chance that a wrong sample scores higher than a right one, a tie counting half; None if all are alike."""
    scores, wrong = _checked(scores, wrong)
    bad, good = int(wrong.sum()), int((~wrong).sum())
    if not bad or not good:
        return None
    above = float(average_ranks(scores)[wrong].sum()) - bad * (bad + 1) / 2
    return above / (bad * good)


def _checked(scores: Array, wrong: Mask) -> tuple[Array, Mask]:
    scores, wrong = np.asarray(scores), np.asarray(wrong)
    if scores.ndim != 1 or scores.shape != wrong.shape or wrong.dtype != np.bool_:
        raise ValueError(
            f"Expected scores and a mask of one shape (samples,). Got {scores.shape} and {wrong.shape}, {wrong.dtype}."
        )
    if np.isnan(scores).any():
        raise ValueError("Expected scores that can be ordered. Got NaN.")
    return scores, wrong
