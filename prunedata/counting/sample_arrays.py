"""Arrays beside the counts, one number for each sample: ``mean_excess``, ``high``, and those that a policy keeps."""

from collections.abc import Container, Iterator, Mapping, Sequence

import numpy as np

from prunedata.counting.batches import Batches
from prunedata.counting.excess import add_excess, mean_after
from prunedata.errors import PrunedataError
from prunedata.policies.protocol import Watcher
from prunedata.policies.rules import MEAN_EXCESS, High
from prunedata.types import Array, Arrays, Counts, Ids, Recorded

__all__ = ["OPEN", "SampleArrays"]

OPEN = "open-"
"""Before the names under which arrays are saved as the open epoch has changed them."""

TAKEN = ("counts", "hits", "visits", "tally", "waiting", "without", MEAN_EXCESS)
KINDS = {"i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8)}
"""What a store can keep: kinds of dtypes, and their bytes."""


class SampleArrays:
    """The arrays of some watchers, and the mean excess of each sample, as all finished epochs left them.

    An open epoch changes copies of its own. So one that stopped in the middle can select again what it selected.

    Parameters
    ----------
    samples : int
    watchers : sequence of Watcher
        Their arrays must differ in name.

    Attributes
    ----------
    finished : dict of ndarray, shape (samples,)
        By name.
    averages : bool
        Whether epochs that begin from now on add to the mean excess.
    """

    def __init__(self, samples: int, watchers: Sequence[Watcher]) -> None:
        self.finished: Arrays = {}
        self.averages = True
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
        self.finished[MEAN_EXCESS] = np.zeros(samples, dtype=np.float32)
        self._room: Recorded = np.empty(0, dtype=np.float32)

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

    def copies(self) -> Arrays:
        """Those that an epoch begins with and may change; of the mean excess, the sums of this epoch."""
        return {
            name: np.zeros_like(array) if name == MEAN_EXCESS else array.copy()
            for name, array in self.finished.items()
            if name != MEAN_EXCESS or self.averages
        }

    def add(self, arrays: Arrays, batches: Batches, visits: Counts) -> None:
        """Take batches over into the arrays of an open epoch, in place.

        ``visits`` says how often each sample was observed in this epoch, these batches included.
        """
        if MEAN_EXCESS in arrays:
            add_excess(arrays[MEAN_EXCESS], batches, self._room_for(batches.losses))
        if not self._watchers:
            return
        ids, of_batch = batches.ids, np.repeat(batches.means, batches.sizes)
        losses = np.asarray(batches.losses, dtype=np.float64)
        for now in _rounds(ids, visits):
            for watcher, names in self._watchers:
                given = {name: arrays[name] for name in names}
                watcher.update(given, ids[now], losses[now], of_batch[now])
                if given.keys() != set(names) or any(given[name] is not arrays[name] for name in names):
                    raise PrunedataError(
                        f"Expected {_name(watcher)}.update() to change its arrays in place, as in "
                        "arrays['loss'][ids] = losses. Got other arrays in their place."
                    )

    def _room_for(self, losses: Recorded) -> Recorded:
        if losses.size > self._room.size or losses.dtype != self._room.dtype:
            self._room = np.empty_like(losses)
        return self._room[: losses.size]

    def end_epoch(self, arrays: Arrays, visits: Counts, visited: Counts) -> None:
        """Take over the arrays of a finished epoch.

        ``visits`` of the run so far, those of this epoch included, and ``visited`` in it, shape (samples,).
        """
        if MEAN_EXCESS in arrays:  # not after the turn
            mean = mean_after(self.finished[MEAN_EXCESS], arrays[MEAN_EXCESS], visits, visited)
            self.finished = arrays | {MEAN_EXCESS: mean}
        else:
            self.finished |= arrays

    def wanted(self, found: Container[str], *, within: bool) -> dict[str, np.dtype]:
        """The dtypes of what a state must have of them; ``within`` an epoch also of those that it changes.

        ``found`` names what it has: an epoch after the turn adds nothing to the mean excess.
        """
        kinds = {name: array.dtype for name, array in self.finished.items()}
        changed = {f"{OPEN}{name}": kind for name, kind in kinds.items()} if within else {}
        return kinds | {name: kind for name, kind in changed.items() if name != OPEN + MEAN_EXCESS or name in found}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take over those in a state that was checked for what is :meth:`wanted`."""
        self.finished = {name: arrays[name].copy() for name in self.finished}

    def saved_open(self, arrays: Mapping[str, Array]) -> Arrays:
        """Copies of those in a state as its open epoch had changed them."""
        names = (name for name in self.finished if name != MEAN_EXCESS or OPEN + name in arrays)
        return {name: arrays[f"{OPEN}{name}"].copy() for name in names}


def _rounds(ids: Ids, visits: Counts) -> Iterator[slice | Ids]:
    """Yield where each id stands for the first time in a buffer, for the second time, and so on.

    So a policy sees each sample's visits in their order, one at a time, wherever a buffer was full. Where every sample
    of the buffer was visited once in the whole epoch, which is the rule, there is one round.
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
