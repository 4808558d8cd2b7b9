"""The two loops over epochs that users write, and one over batches that looks ahead."""

from collections.abc import Iterator
from typing import Any

from prunedata import Pruner

__all__ = ["Calls", "Epochs", "one_ahead"]


class Calls:
    """The loop that begins and ends epochs itself."""

    ready: Any = None
    """The epoch that has begun already."""

    def __init__(self, pruner: Pruner) -> None:
        self.pruner = pruner

    def begin(self) -> Any:
        return self.pruner.begin_epoch()

    def end(self) -> None:
        self.pruner.end_epoch()

    def leave(self) -> None:
        """Nothing was begun."""


class Epochs(Calls):
    """The loop ``for epoch in pruner.epochs()``, which may be left and run again."""

    loop: Any = None

    def begin(self) -> Any:
        if self.ready is not None:
            epoch, self.ready = self.ready, None
            return epoch
        self.leave()
        self.loop = self.pruner.epochs()
        return next(self.loop, None)

    def end(self) -> None:
        self.ready = next(self.loop, None)

    def leave(self) -> None:
        """Break."""
        if self.loop is not None:
            self.loop.close()
        self.loop = self.ready = None


def one_ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """Fetch a batch before the one before is given, as prefetchers do."""
    waiting = None
    for batch in batches:
        if waiting is not None:
            yield waiting
        waiting = batch
    if waiting is not None:
        yield waiting
