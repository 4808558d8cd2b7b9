"""Arrays beside the counts, one number for each sample: ``mean_excess``, ``guess``, ``high``, and a policy's own."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from prunedata.counting.batches import Batches, rounds
from prunedata.counting.counts import each_batch
from prunedata.counting.guess import Guess
from prunedata.errors import PrunedataError
from prunedata.policies.protocol import Watcher
from prunedata.policies.rules import MEAN_EXCESS, High
from prunedata.store.schema import NUMBERS
from prunedata.store.state import DTYPES, GUESS, LABEL, OPEN
from prunedata.types import Array, Arrays, Counts, Recorded

CHUNK = 1 << 15  # means that are computed at once: few enough that temporaries reuse memory
LARGEST = 1e30
"""Largest excess of one loss: the sum over the visits of a sample in an epoch is then finite in float32."""
SUMS = frozenset({MEAN_EXCESS})
"""Arrays that in an open epoch have sums over the epoch: those of several processes add up."""


class SampleArrays:
    """The arrays of watchers, the mean excess and the guess of each sample, as all finished epochs left them.

    An open epoch changes copies of them, so that a resumed epoch can select by the same values again.

    The mean excess, ``mean_excess``, float32, is how far a sample's losses were above the means of their batches, on
    average. It ranks suspects. The loss of a wrong label stays above the mean of its batch until the network has
    memorized the label: so nothing is added from the memorization onset on (docs/evidence/turn.md).
    """

    def __init__(self, samples: int, watchers: Sequence[Watcher], guess: Guess | None = None) -> None:
        self.finished: Arrays = {}  # by name, each of shape (samples,)
        self._owners: list[tuple[Watcher, list[str]]] = []
        for watcher in watchers:
            arrays = watcher.arrays(samples)
            if not isinstance(arrays, dict):
                raise PrunedataError(
                    f"Expected a dict of arrays from {type(watcher).__name__}.arrays(). Got {arrays!r}."
                )
            for name, array in arrays.items():
                self._check(watcher, name, array, samples)
            self.finished |= arrays
            if arrays:
                self._owners.append((watcher, list(arrays)))
        self.finished[MEAN_EXCESS] = np.zeros(samples, dtype=np.float32)
        self.adds_excess = True  # whether losses are added to the mean excess
        self.guess = guess or Guess()
        self._room: Recorded = np.empty(0, dtype=np.float32)

    def _check(self, watcher: Watcher, name: object, array: Any, samples: int) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise PrunedataError(
                f"Expected the name of an array to be a word of letters, digits and _, such as 'loss'. Got {name!r}."
            )
        if name in self.finished or (name in DTYPES and not isinstance(watcher, High)):
            raise PrunedataError(
                f"Expected arrays with names of their own. Got {name!r}, which is taken: choose another."
            )
        storable = isinstance(array, np.ndarray) and array.dtype.isnative and array.dtype.str[1:] in NUMBERS
        if not storable or array.shape != (samples,):
            found = f"shape {array.shape}, {array.dtype}" if isinstance(array, np.ndarray) else repr(array)
            raise PrunedataError(
                f"Expected the array {name} of shape ({samples},) and an integer or floating dtype of up to 64 bits, "
                f"in this machine's byte order, as np.uint8 for True and False. Got {found}."
            )

    def copies(self) -> Arrays:
        """Return the arrays that an epoch begins with and may change."""
        return {name: np.zeros_like(array) if name in SUMS else array.copy() for name, array in self.finished.items()}

    def add(self, arrays: Arrays, batches: Batches, visits: Counts) -> None:
        """Update the arrays of an open epoch by some batches, in place.

        ``visits`` are those of this epoch, these batches included, shape (samples,).
        """
        if self.adds_excess:
            self._add_excess(arrays[MEAN_EXCESS], batches)
        self.guess.add(arrays, batches, visits)
        if self._owners:
            self._update(arrays, batches, visits)

    def _add_excess(self, sums: Array, batches: Batches) -> None:
        """Add the excess of each loss to the epoch's sums, in place: one visit after the other, in float32."""
        losses = batches.losses
        if losses.size > self._room.size or losses.dtype != self._room.dtype:
            self._room = np.empty_like(losses)  # it is reused: new memory would take as long as the sums
        room = self._room[: losses.size]
        each_batch(np.subtract, losses, batches.sizes, batches.means.astype(losses.dtype), room)
        np.clip(room, -LARGEST, LARGEST, out=room)
        np.add.at(sums, batches.ids, room.astype(np.float32, copy=False))

    def _update(self, arrays: Arrays, batches: Batches, visits: Counts) -> None:
        """Pass the visits of some batches to each watcher, each sample's one at a time."""
        ids, means = batches.ids, np.repeat(batches.means, batches.sizes)
        losses = np.asarray(batches.losses, dtype=np.float64)
        for places in rounds(ids, visits):
            for watcher, names in self._owners:
                own = {name: arrays[name] for name in names}
                watcher.update(own, ids[places], losses[places], means[places])
                if own.keys() != set(names) or any(own[name] is not arrays[name] for name in names):
                    raise PrunedataError(
                        f"Expected {type(watcher).__name__}.update() to change its arrays in place, as in "
                        "arrays['loss'][ids] = losses. Got other arrays in their place."
                    )

    def after(self, arrays: Arrays, visits: Counts, visited: Counts) -> Arrays:
        """Return the arrays after an epoch that left ``arrays``, which may be overwritten.

        ``visits`` are those of the run so far, this epoch included; ``visited`` those of this epoch, shape (samples,).
        """
        mean, sums = self.finished[MEAN_EXCESS], arrays[MEAN_EXCESS]
        if not self.adds_excess:
            return arrays | {MEAN_EXCESS: mean}
        for first in range(0, mean.size, CHUNK):  # in chunks and in place: temporaries would double the memory
            part = slice(first, first + CHUNK)
            number = np.maximum(visits[part], 1).astype(np.float32)
            sums[part] = mean[part] + (sums[part] - visited[part].astype(np.float32) * mean[part]) / number
        return arrays

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Load the arrays of a checked state."""
        self.finished = {name: arrays[name].copy() for name in (*self.finished, GUESS, LABEL) if name in arrays}

    def saved_open(self, arrays: Mapping[str, Array]) -> Arrays:
        """Return copies of a state's arrays, as its open epoch had changed them."""
        names = (*self.finished, GUESS, LABEL)
        return {name: arrays[f"{OPEN}{name}"].copy() for name in names if f"{OPEN}{name}" in arrays}
