"""The validation figure among what a trainer logs, for adapters that hand it over."""

from collections.abc import Mapping
from typing import Any

from prunedata.checks import shown
from prunedata.errors import PrunedataError

__all__ = ["check_mode", "monitored"]


def check_mode(mode: object) -> None:
    """Raise :class:`PrunedataError` unless it is "max" or "min"."""
    if mode not in ("max", "min"):
        raise PrunedataError(f'Expected mode to be "max" or "min". Got {shown(mode)}.')


def monitored(logged: Mapping[str, Any], name: str) -> Any:
    """Return the figure of this name. Raises :class:`PrunedataError` if there is none, saying what there is."""
    if name not in logged:
        raise PrunedataError(
            f"Expected {name!r} among what is logged, as monitor says. Got {', '.join(sorted(logged)) or 'nothing'}."
        )
    return logged[name]
