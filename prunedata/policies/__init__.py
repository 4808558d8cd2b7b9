"""Policies, which decide what a pruned epoch leaves out: those of the library, and the protocol for your own."""

from prunedata.policies.protocol import Known, Policy, Watcher, Weigher
from prunedata.policies.rules import (
    BoundedLoss,
    DroppingCount,
    EasyPruning,
    LossRanked,
    Random,
    RecentLoss,
    RunningLoss,
)
from prunedata.policies.selection import keep_mask

__all__ = [
    "BoundedLoss", "DroppingCount", "EasyPruning", "Known", "LossRanked", "Policy", "Random", "RecentLoss",
    "RunningLoss", "Watcher", "Weigher", "keep_mask",
]  # fmt: skip
