"""Choose, epoch by epoch, which samples to train on.

>>> from prunedata import Schedule
>>> Schedule(epochs=200, window=60, start=20, block=5, pruned_per_block=4, attenuation=2).pruned_epochs[:6]
(20, 21, 22, 23, 25, 26)
"""

from importlib.metadata import PackageNotFoundError as _NotInstalled
from importlib.metadata import version as _version

from prunedata.dealing.deal import Deal, Receipt, Wait
from prunedata.dealing.dealer import Dealer
from prunedata.errors import (
    DamagedStore,
    DealerDied,
    FinishedWarning,
    ForeignStore,
    LossError,
    NeverPrunesWarning,
    NotInEpoch,
    PrunedataError,
    RunExists,
    ScheduleError,
    SkippedSamples,
    StoreError,
)
from prunedata.findings.advice import Advice, advise
from prunedata.plan.cost import CostModel
from prunedata.plan.schedule import Schedule
from prunedata.policies.bounded_loss import BoundedLoss
from prunedata.policies.dropping_count import DroppingCount
from prunedata.policies.easy_pruning import EasyPruning
from prunedata.policies.loss_ranked import LossRanked
from prunedata.policies.protocol import Known, Policy, Watcher, Weigher
from prunedata.policies.random import Random
from prunedata.policies.running_loss import RunningLoss
from prunedata.policies.selection import keep_mask
from prunedata.reporting.report import Report, report
from prunedata.run.adapter import Adapter, Delivery
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner

try:
    __version__ = _version("prunedata")
except _NotInstalled:  # run from a source tree that was not installed
    __version__ = "0+unknown"

__all__ = [
    "Adapter",
    "Advice",
    "BoundedLoss",
    "CostModel",
    "DamagedStore",
    "Deal",
    "Dealer",
    "DealerDied",
    "Delivery",
    "DroppingCount",
    "EasyPruning",
    "Epoch",
    "FinishedWarning",
    "ForeignStore",
    "Known",
    "LossError",
    "LossRanked",
    "NeverPrunesWarning",
    "NotInEpoch",
    "Policy",
    "PrunedataError",
    "Pruner",
    "Random",
    "Receipt",
    "Report",
    "RunExists",
    "RunningLoss",
    "Schedule",
    "ScheduleError",
    "SkippedSamples",
    "StoreError",
    "Wait",
    "Watcher",
    "Weigher",
    "__version__",
    "advise",
    "keep_mask",
    "report",
]
