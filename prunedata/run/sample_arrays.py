"""Arrays beside the counts, one number for each sample: those that a policy keeps, and ``high``.

They stand twice while an epoch is open: as the epoch found them, and as its losses have changed them. So an epoch
that stopped in the middle can select again what it selected.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from prunedata.errors import PrunedataError
from prunedata.policies.high import High
from prunedata.policies.protocol import Watcher
from prunedata.types import Array, Arrays, Counts, Ids, Means, Recorded, Sizes

__all__ = ["SampleArrays"]

TAKEN = ("counts", "hits", "visits", "tally", "waiting", "without")
KINDS = {"i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8)}
"""What a store can keep: kinds of dtypes, and their bytes."""


class SampleArrays:
    """The arrays of some watchers, between epochs and within one.

    Parameters
    ----------
    samples : int
    watchers : sequence of Watcher
        Their arrays must differ in name.
    """

    def __init__(self, samples: int, watchers: Sequence[Watcher]) -> None:
        self.finished: Arrays = {}
        """As all finished epochs left them."""
        self.open: Arrays = {}
        """With the losses of the open epoch; of no meaning where none is."""
        self._watchers: list[tuple[Watcher, list[str]]] = []
        for watcher in watchers:
            made = watcher.arrays(samples)
            if not isinstance(made, dict):
                raise PrunedataError(f"Expected a dict of arrays from {_name(watcher)}.arrays(). Got {made!r}.")
            for name, array in made.items():
                self._check(watcher, name, array, samples)
            self.finished |= made
            if made:
                self._watchers.append((watcher, list(made)))

    def _check(self, watcher: Watcher, name: object, array: object, samples: int) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise PrunedataError(
                f"Expected the name of an array to be a word of letters, digits and _, such as 'loss'. Got {name!r}."
            )
        # Who reads a run takes "high" for what it means there, whoever wrote it.
        if name in TAKEN or name in self.finished or (name == "high" and not isinstance(watcher, High)):
            raise PrunedataError(
                f"Expected arrays with names of their own. Got {name!r}, which is taken: choose another."
            )
        if isinstance(array, np.ndarray):
            kept = array.dtype.itemsize in KINDS.get(array.dtype.kind, ()) and array.dtype.isnative
            if array.shape == (samples,) and kept:
                return
            found = f"shape {array.shape}, {array.dtype}"
        else:
            found = repr(array)
        raise PrunedataError(
            f"Expected the array {name} of shape ({samples},) and an integer or floating dtype of up to 64 bits, in "
            f"this machine's byte order, as np.uint8 for True and False. Got {found}."
        )

    def begin(self) -> None:
        """Begin an epoch."""
        self.open = {name: array.copy() for name, array in self.finished.items()}

    def add(self, ids: Ids, losses: Recorded, sizes: Sizes, means: Means, visits: Counts) -> None:
        """Take over a block of the open epoch: batches of such sizes and mean losses, one after the other.

        ``visits`` says how often each sample was observed in this epoch, the block included.
        """
        if not self._watchers:
            return
        losses, of_batch = np.asarray(losses, dtype=np.float64), np.repeat(means, sizes)
        for now in _rounds(ids, visits):
            for watcher, names in self._watchers:
                given = {name: self.open[name] for name in names}
                watcher.update(given, ids[now], losses[now], of_batch[now])
                if given.keys() != set(names) or any(given[name] is not self.open[name] for name in names):
                    raise PrunedataError(
                        f"Expected {_name(watcher)}.update() to change its arrays in place, as in "
                        "arrays['loss'][ids] = losses. Got other arrays in their place."
                    )

    def finish(self) -> None:
        """The epoch is done."""
        self.finished, self.open = self.open, {}

    def standing(self, *, within: bool) -> Arrays:
        """All arrays by the names under which they are saved; ``within`` an epoch also those that it changes."""
        return self.finished | ({f"open-{name}": array for name, array in self.open.items()} if within else {})

    def wanted(self, *, within: bool) -> dict[str, np.dtype]:
        """The dtypes of what :meth:`standing` gives."""
        kinds = {name: array.dtype for name, array in self.finished.items()}
        return kinds | ({f"open-{name}": kind for name, kind in kinds.items()} if within else {})

    def restore(self, saved: Mapping[str, Array], *, within: bool) -> None:
        """Go on from what :meth:`standing` gave."""
        self.open = {name: saved[f"open-{name}"].copy() for name in self.finished} if within else {}
        self.finished = {name: saved[name].copy() for name in self.finished}


def _rounds(ids: Ids, visits: Counts) -> Iterator[slice | Ids]:
    """Yield where each id stands for the first time in a block, for the second time, and so on.

    So a policy sees each sample's visits in their order, one at a time, wherever blocks were cut. Where every sample
    of the block was visited once in the whole epoch, which is the rule, there is one round.
    """
    if (visits[ids] == 1).all():
        yield slice(None)
        return
    order = np.argsort(ids, kind="stable")
    new = np.append(True, np.diff(ids[order]) != 0)
    if new.all():
        yield slice(None)
        return
    starts = np.flatnonzero(new)
    nth = np.arange(ids.size) - np.repeat(starts, np.diff(np.append(starts, ids.size)))
    for turn in range(int(nth.max()) + 1):
        yield order[nth == turn]


def _name(watcher: object) -> str:
    return type(watcher).__name__
