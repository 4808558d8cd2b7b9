"""Choose, epoch by epoch, which samples to train on.

>>> from prunedata import Schedule
>>> Schedule(epochs=200, window=60, start=20, block=5, pruned_per_block=4, attenuation=2).pruned_epochs[:6]
(20, 21, 22, 23, 25, 26)
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers, editors and the reference; below is how each name comes when it is used
    from prunedata.dealing.deal import Deal, Receipt, Wait
    from prunedata.dealing.dealer import Dealer
    from prunedata.findings.advice import Advice, advise
    from prunedata.plan.cost import CostModel
    from prunedata.plan.schedule import Schedule
    from prunedata.reporting.report import Report, report
    from prunedata.run.adapter import Adapter, Delivery
    from prunedata.run.epoch import Epoch
    from prunedata.run.pruner import Pruner

    __version__: str
else:
    _NAMES = {
        "dealing.deal": "Deal Receipt Wait",
        "dealing.dealer": "Dealer",
        "findings.advice": "Advice advise",
        "plan.cost": "CostModel",
        "plan.schedule": "Schedule",
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
    "Adapter", "Advice", "CostModel", "Deal", "Dealer", "Delivery", "Epoch", "Pruner", "Receipt", "Report", "Schedule",
    "Wait", "__version__", "advise", "report",
]  # fmt: skip
