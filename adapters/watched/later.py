"""Batches of a watched training that wait until the losses of many are computed together, in any framework."""

from collections.abc import Callable
from math import prod
from typing import Any

SMALL = 1 << 18  # numbers that may wait: of a batch, and of all batches together where no step is in its middle
Compute = Callable[[list[Any], list[tuple[Callable[..., Any], list[tuple[Any, ...]]]], list[int]], None]


def shapes_of(parts: tuple[Any, ...]) -> list[Any]:
    """Return the shapes of a sample's parts. Only those of equal shapes are joined."""
    return [part.shape[1:] for part in parts]


class Waiting:
    """Keep what the losses of batches are made of, so that a step computes nothing and waits for no device.

    ``compute(ids, groups, sizes)`` joins batches and records their losses. It gets the ids of each batch that was
    added; ``losses_of`` and the parts of all batches, in groups of equal ones, of which there are several only where
    those of a step differ; and the number of samples of each batch, in which all that a step added is one.
    ``kind_of(parts)`` returns what must be equal of batches that are joined.
    """

    batches = 256  # the most batches that wait, beside those of a step that has not ended

    def __init__(self, compute: Compute, kind_of: Callable[[tuple[Any, ...]], Any] = shapes_of) -> None:
        self._compute, self._kind_of = compute, kind_of
        self._forget()

    def _forget(self) -> None:
        self._ids: list[Any] = []
        self._groups: list[tuple[Callable[..., Any], list[tuple[Any, ...]]]] = []
        self._sizes: list[int] = []
        self._alike: Any = None
        self._of_sample, self._room, self._open = 0, SMALL, False

    def add(self, ids: Any, parts: tuple[Any, ...], losses_of: Callable[..., Any], *, ends: bool = True) -> None:
        """Add a batch: ids of shape (n,), and tensors of shape (n, ...), none of which may be changed afterwards.

        ``losses_of(*parts)`` returns what is recorded of several batches. Batches with equal ones wait together. All
        parts of a step are one batch, which ``ends`` with the last.
        """
        alike, size = (losses_of, self._kind_of(parts)), len(ids)
        full = len(self._ids) >= self.batches or self._room < 0
        differs = alike != self._alike
        if not self._open and (full or differs):
            self.flush()
        if differs or not self._groups:
            self._groups.append((losses_of, []))
            self._alike, self._of_sample = alike, sum(prod(part.shape[1:]) for part in parts)
        self._ids.append(ids)
        self._groups[-1][1].append(parts)
        self._room -= size * self._of_sample
        if self._open:
            self._sizes[-1] += size
        else:
            self._sizes.append(size)
        self._open = not ends

    def __len__(self) -> int:
        return len(self._ids)

    def flush(self) -> None:
        """Compute and record the losses of the waiting batches."""
        if not self._ids:
            return
        ids, groups, sizes = self._ids, self._groups, self._sizes
        self._forget()
        self._compute(ids, groups, sizes)
