"""Arrays beside the counts, one number a sample: those that a policy keeps, and ``high``.

They stand twice while an epoch is open: as the epoch found them, and as its losses have changed them. So an epoch
that stopped in the middle can select again what it selected.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from prunedata.errors import PrunedataError
from prunedata.policies.protocol import Watcher
from prunedata.types import Array, Ids, Losses, Means, Recorded, Sizes, smallest_unsigned

__all__ = ["Extras", "High"]

TAKEN = ("counts", "hits", "visits", "tally")


class High:
    """Counts for each sample the visits with a loss above that of a blind guess, ``ln(classes)``.

    The array ``high``, shape (samples,), uint16 in runs of up to 65,535 epochs, saturates.
    """

    def __init__(self, classes: int, epochs: int) -> None:
        self.limit = math.log(classes)
        self._dtype = np.promote_types(np.uint16, smallest_unsigned(epochs))

    def arrays(self, samples: int) -> dict[str, Array]:
        """``high``."""
        return {"high": np.zeros(samples, self._dtype)}

    def update(self, arrays: dict[str, Array], ids: Ids, losses: Losses, means: Losses) -> None:
        """Count the visits of a block."""
        high, which = arrays["high"], ids[losses > self.limit]
        before = high[which]
        np.add.at(high, which, self._dtype.type(1))
        # In 16 bits what an epoch can add wraps at most once, and so ends below where it was.
        wrapped = high[which] < before
        if wrapped.any():
            high[which[wrapped]] = np.iinfo(self._dtype).max


class Extras:
    """The arrays of some watchers, between epochs and within one.

    Parameters
    ----------
    samples : int
    watchers : sequence of Watcher
        Their arrays must differ in name.
    """

    def __init__(self, samples: int, watchers: Sequence[Watcher]) -> None:
        self.arrays: dict[str, Array] = {}
        """As all finished epochs left them."""
        self.open: dict[str, Array] = {}
        """With the losses of the open epoch; of no meaning where none is."""
        self._watchers: list[tuple[Watcher, list[str]]] = []
        for watcher in watchers:
            made = watcher.arrays(samples)
            for name, array in made.items():
                self._check(name, array, samples)
            self.arrays |= made
            if made:
                self._watchers.append((watcher, list(made)))

    def _check(self, name: str, array: Array, samples: int) -> None:
        if not isinstance(name, str) or not name.isidentifier() or name in TAKEN or name in self.arrays:
            raise PrunedataError(f"Expected arrays with names of their own, such as 'loss'. Got {name!r}.")
        if not isinstance(array, np.ndarray) or array.shape != (samples,) or array.dtype.kind not in "iuf":
            found = f"shape {array.shape}, {array.dtype}" if isinstance(array, np.ndarray) else repr(array)
            raise PrunedataError(
                f"Expected the array {name} of shape ({samples},) and an integer or floating dtype. Got {found}."
            )

    def begin(self) -> None:
        """Begin an epoch."""
        self.open = {name: array.copy() for name, array in self.arrays.items()}

    def add(self, ids: Ids, losses: Recorded, sizes: Sizes, means: Means) -> None:
        """Take over a block of the open epoch: batches of such sizes and mean losses, one after the other."""
        if self._watchers:
            losses, of_batch = losses.astype(np.float64, copy=False), np.repeat(means, sizes)
            for watcher, names in self._watchers:
                watcher.update({name: self.open[name] for name in names}, ids, losses, of_batch)

    def finish(self) -> None:
        """The epoch is done."""
        self.arrays = self.open

    def standing(self, *, within: bool) -> dict[str, Array]:
        """All arrays by the names under which they are saved; ``within`` an epoch also those that it changes."""
        return self.arrays | ({f"open-{name}": array for name, array in self.open.items()} if within else {})

    def wanted(self, *, within: bool) -> dict[str, np.dtype]:
        """The dtypes of what :meth:`standing` gives."""
        kinds = {name: array.dtype for name, array in self.arrays.items()}
        return kinds | ({f"open-{name}": kind for name, kind in kinds.items()} if within else {})

    def restore(self, saved: Mapping[str, Array], *, within: bool) -> None:
        """Go on from what :meth:`standing` gave."""
        self.open = {name: saved[f"open-{name}"].copy() for name in self.arrays} if within else {}
        self.arrays = {name: saved[name].copy() for name in self.arrays}
