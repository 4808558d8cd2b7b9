"""A sampler that stands in the place of the user's own, with its attributes."""

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import Sampler

from prunedata.errors import PrunedataError

__all__ = ["StandIn", "two_at_a_time"]


class StandIn(Sampler[Any]):
    """What a DataLoader wants to see: a length, and a fresh iterator at every call, of which the newest may be used.

    All other attributes are read from ``source``, if there is one, and set there: trainers look for ``set_epoch`` on
    what a loader has. Those in ``own`` are this object's.
    """

    _length: Callable[[], int]
    _walk: Callable[[], Iterator[Any]]
    _source: Any
    _turn: object
    """Of the newest iterator."""

    def __init__(
        self,
        length: Callable[[], int],
        walk: Callable[[], Iterator[Any]],
        source: Any = None,
        own: dict[str, Any] | None = None,
    ) -> None:
        vars(self).update(own or {}, _length=length, _walk=walk, _source=source, _turn=None)

    def __len__(self) -> int:
        return self._length()

    def __iter__(self) -> Iterator[Any]:
        turn = self._turn = object()  # when the first is asked for: trainers make iterators that they never use
        for each in self._walk():
            if self._turn is not turn:
                break
            yield each
        if self._turn is not turn:
            raise two_at_a_time()

    def __getattr__(self, name: str) -> Any:
        source = vars(self).get("_source")
        if source is None or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(source, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._source is None or name in vars(self):
            super().__setattr__(name, value)
        else:
            setattr(self._source, name, value)


def two_at_a_time() -> PrunedataError:
    """What to raise in the older of two iterators, both of which give every sample."""
    return PrunedataError(
        "Expected one iterator at a time over a pruned loader. Got another batch asked of an older one after a newer "
        "one had begun, as zip(loader, loader) does, so that every sample would be observed twice: take the batches in "
        "turn from one iterator."
    )
