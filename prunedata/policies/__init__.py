"""Which samples a pruned epoch leaves out: the policies of the library, and what one of your own needs."""

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
    "BoundedLoss",
    "DroppingCount",
    "EasyPruning",
    "Known",
    "LossRanked",
    "Policy",
    "Random",
    "RecentLoss",
    "RunningLoss",
    "Watcher",
    "Weigher",
    "keep_mask",
]
