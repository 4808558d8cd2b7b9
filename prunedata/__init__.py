"""Choose, epoch by epoch, which samples to train on.

>>> from prunedata import Schedule
>>> Schedule(epochs=200, window=60, start=20, block=5, pruned_per_block=4, attenuation=2).pruned_epochs[:6]
(20, 21, 22, 23, 25, 26)
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers, editors and the reference; below is how each name comes when it is used
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
        UnweighedWarning,
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
    from prunedata.policies.recent_loss import RecentLoss
    from prunedata.policies.running_loss import RunningLoss
    from prunedata.policies.selection import keep_mask
    from prunedata.reporting.report import Report, report
    from prunedata.run.adapter import Adapter, Delivery
    from prunedata.run.epoch import Epoch
    from prunedata.run.pruner import Pruner

    __version__: str
else:
    _NAMES = {
        "dealing.deal": "Deal Receipt Wait",
        "dealing.dealer": "Dealer",
        "errors": (
            "DamagedStore DealerDied FinishedWarning ForeignStore LossError NeverPrunesWarning NotInEpoch "
            "PrunedataError RunExists ScheduleError SkippedSamples StoreError UnweighedWarning"
        ),
        "findings.advice": "Advice advise",
        "plan.cost": "CostModel",
        "plan.schedule": "Schedule",
        "policies.bounded_loss": "BoundedLoss",
        "policies.dropping_count": "DroppingCount",
        "policies.easy_pruning": "EasyPruning",
        "policies.loss_ranked": "LossRanked",
        "policies.protocol": "Known Policy Watcher Weigher",
        "policies.random": "Random",
        "policies.recent_loss": "RecentLoss",
        "policies.running_loss": "RunningLoss",
        "policies.selection": "keep_mask",
        "reporting.report": "Report report",
        "run.adapter": "Adapter Delivery",
        "run.epoch": "Epoch",
        "run.pruner": "Pruner",
        "version": "__version__",
    }
    _MODULES = {name: f"prunedata.{module}" for module, names in _NAMES.items() for name in names.split()}

    def __getattr__(name: str) -> object:
        """Import a name of the library when it is first used: whoever trains needs no report, and no dealer."""
        from importlib import import_module  # noqa: PLC0415

        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value = getattr(import_module(_MODULES[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


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
    "RecentLoss",
    "Report",
    "RunExists",
    "RunningLoss",
    "Schedule",
    "ScheduleError",
    "SkippedSamples",
    "StoreError",
    "UnweighedWarning",
    "Wait",
    "Watcher",
    "Weigher",
    "__version__",
    "advise",
    "keep_mask",
    "report",
]
