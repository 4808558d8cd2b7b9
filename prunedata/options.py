"""The options of a run, one line each, by which a Pruner checks them, a store records them, and pages show them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prunedata.checks import integer, real, shown
from prunedata.errors import PrunedataError


@dataclass(frozen=True)
class Option:
    """An argument of :class:`prunedata.Pruner` that is one plain value."""

    name: str
    plain: Callable[[str, Any], Any]
    """Given the name and a value, returns the value as JSON has it, or raises :class:`PrunedataError`."""
    default: Any = None
    always: bool = False  # whether a store records the default, too


def _integer(low: int, high: int) -> Callable[[str, Any], int]:
    return lambda name, value: integer(name, value, low, high)


def _at_least(low: int) -> Callable[[str, Any], int | None]:
    return lambda name, value: None if value is None else integer(name, value, low)


def one_of(*allowed: str) -> Callable[[str, Any], str]:
    """Return a check that a value is one of some words: given its name and the value, it returns the value."""

    def plain(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise PrunedataError(f"Expected {name} to be {' or '.join(map(repr, allowed))}. Got {shown(value)}.")
        return value

    return plain


def _share(name: str, value: Any) -> float | None:
    if value is None:
        return None
    share = real(name, value, 0.0, above=True)
    if share >= 1:
        raise PrunedataError(f"Expected {name} to be a share of the samples, between 0 and 1. Got {shown(value)}.")
    return share


OPTIONS = (
    Option("seed", _integer(-(1 << 63), (1 << 64) - 1), 0, always=True),
    Option("batch_size", _at_least(1), always=True),
    Option("classes", _at_least(2)),
    Option("leave_out", one_of("delivery", "weight", "nothing"), "delivery"),
    Option("holdout", _share),
)
