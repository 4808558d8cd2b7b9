"""Whether a policy's scores wrap around below zero, as counts are unsigned."""

from dataclasses import replace

import numpy as np

from prunedata.policies.protocol import Known, Policy
from prunedata.types import Array

__all__ = ["wraps_around"]

MARGIN = 1e-3  # of the span of all scores: a division, for one, may be rounded otherwise for other dtypes


def wraps_around(policy: Policy, known: Known, scores: Array) -> bool:
    """Whether scores come in another order when the same counts are signed, one size wider.

    A policy need not work with signed counts. Where it doesn't, nothing can be told.
    """
    counts = {name: getattr(known, name) for name in ("counts", "hits", "visits")}
    signed = {name: array.astype(np.promote_types(array.dtype, np.int8)) for name, array in counts.items()}
    try:
        others = np.array(policy.scores(replace(known, **signed)), np.float64)
        order = np.argsort(others, kind="stable")
        up, down = np.diff(others[order]), -np.diff(scores[order].astype(np.float64))
        return bool(((up > MARGIN * np.ptp(others)) & (down > MARGIN * np.ptp(scores.astype(np.float64)))).any())
    except Exception:
        return False
