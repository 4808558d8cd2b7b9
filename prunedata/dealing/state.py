"""Where a dealer stands, as plain values beside those of its run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prunedata.checks import integer, shown
from prunedata.dealing.staleness import Staleness
from prunedata.errors import PrunedataError

__all__ = ["DealerState"]

FORMAT = 1


@dataclass(frozen=True, eq=False)
class DealerState:
    """Where a dealer stands. What is with workers is not in it: it is dealt again.

    Attributes
    ----------
    batch_size : int
    skipped : dict of int to int
        Samples of each skipped batch of the open epoch, by its number.
    staleness : Staleness
    run : dict
        What ``Pruner.state_dict`` returned.
    """

    batch_size: int
    skipped: dict[int, int]
    staleness: Staleness
    run: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain values: dicts, lists, numbers, strings and bytes."""
        return {
            "format": FORMAT,
            "batch_size": self.batch_size,
            "skipped": [list(pair) for pair in sorted(self.skipped.items())],
            "staleness": self.staleness.to_dict(),
            "run": self.run,
        }

    @classmethod
    def from_dict(cls, plain: Any, batch_size: int) -> DealerState:
        """Return what :meth:`to_dict` was called on. Raises :class:`PrunedataError` if it is nothing of the kind."""
        if (
            not isinstance(plain, dict)
            or not isinstance(plain.get("run"), dict)
            or not _is(plain.get("format"), FORMAT)
        ):
            raise PrunedataError(f"Expected what a dealer's state_dict() returned. Got {type(plain).__name__}.")
        if not _is(plain.get("batch_size"), batch_size):
            raise PrunedataError(
                f"Expected the state of a dealer with batch_size={batch_size}. Got one with "
                f"batch_size={shown(plain.get('batch_size'))}, whose batches are others."
            )
        try:
            pairs = [(number, size) for number, size in plain["skipped"]]
        except (LookupError, TypeError, ValueError) as error:
            raise PrunedataError(
                f"Expected skipped batches in a dealer's state. Got {shown(plain.get('skipped'))}."
            ) from error
        skipped = {integer("a batch", number, 0): integer("its samples", size, 1, batch_size) for number, size in pairs}
        return cls(batch_size, skipped, Staleness.from_dict(plain.get("staleness")), plain["run"])


def _is(value: object, number: int) -> bool:
    """Whether a value that anybody may have written is this number."""
    return type(value) is int and value == number
