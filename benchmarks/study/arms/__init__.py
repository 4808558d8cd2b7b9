"""The arms of the study: a file for each, or for a family of them.

A new arm is a new file here, and nothing else.

Each file has a tuple ``ARMS`` of :class:`benchmarks.study.arm.Arm`. All files of this folder are found by themselves.
"""

from importlib import import_module
from pkgutil import iter_modules

from benchmarks.study.arm import Arm

__all__ = ["ARMS", "columns", "look_of"]


def _found() -> dict[str, Arm]:
    files = [import_module(f"{__name__}.{file.name}") for file in iter_modules(__path__)]
    arms = sorted((arm for file in files for arm in file.ARMS), key=lambda arm: (arm.order, arm.name))
    names = [arm.name for arm in arms]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"Expected a name for each arm. Got {', '.join(sorted(twice))} twice.")
    return dict(zip(names, arms, strict=True))


ARMS = _found()
"""All arms by name, sorted by :attr:`Arm.order` and then by name."""


def columns() -> dict[str, tuple[Arm, ...]]:
    """Return the headings of the tables in order, and the arms that stand under each."""
    shown = sorted((arm for arm in ARMS.values() if arm.column), key=lambda arm: arm.column_order)
    return {heading: tuple(arm for arm in shown if arm.column == heading) for heading in (a.column for a in shown)}


def look_of(name: str) -> tuple[str, str]:
    """Return the colour and the marker of an arm, also of one that is no more but has recorded runs."""
    arm = ARMS.get(name) or Arm(name=name, what="", choose=next(iter(ARMS.values())).choose)
    return arm.colour, arm.marker
