"""Arrays beside the counts, one number for each sample: ``mean_excess``, ``guess``, ``high``, and a policy's own."""

from collections.abc import Mapping, Sequence

import numpy as np

from prunedata.counting.batches import Batches, rounds
from prunedata.counting.excess import SUMS, Excess
from prunedata.counting.guess import Guess, wanted_guess
from prunedata.errors import PrunedataError
from prunedata.policies.protocol import Watcher
from prunedata.policies.rules import High
from prunedata.store.state import GUESS, OF_ROWS
from prunedata.types import Array, Arrays, Counts

__all__ = ["OPEN", "SampleArrays"]

OPEN = "open-"
"""Before the names under which arrays are saved as the open epoch has changed them."""

TAKEN = ("counts", "hits", "visits", "tally", "waiting", "labels", GUESS, *OF_ROWS, *SUMS)
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
    guess : Guess, optional
        What watches the guesses of a run that knows its labels, or how many classes there are.

    Attributes
    ----------
    finished : dict of ndarray, shape (samples,)
        By name.
    excess : Excess
        What watches the mean excess.
    guess : Guess
        What watches the class that the network takes each sample for. Its array is there once logits came.
    """

    def __init__(self, samples: int, watchers: Sequence[Watcher], guess: Guess | None = None) -> None:
        self.finished: Arrays = {}
        owners: list[tuple[Watcher, list[str]]] = []
        for watcher in watchers:
            made = watcher.arrays(samples)
            if not isinstance(made, dict):
                raise PrunedataError(f"Expected a dict of arrays from {_name(watcher)}.arrays(). Got {made!r}.")
            for name, array in made.items():
                self._check(watcher, name, array, samples)
            self.finished |= made
            if made:
                owners.append((watcher, list(made)))
        self.excess, self.guess = Excess(), guess or Guess()
        self._kept: tuple[_Watched | Excess | Guess, ...] = (self.excess, self.guess, _Watched(owners))
        self.finished |= self.excess.arrays(samples)

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
        """Those that an epoch begins with and may change."""
        return {name: array for each in self._kept for name, array in each.begin(self.finished).items()}

    def add(self, arrays: Arrays, batches: Batches, visits: Counts) -> None:
        """Take batches over into the arrays of an open epoch, in place.

        ``visits`` says how often each sample was observed in this epoch, these batches included.
        """
        for each in self._kept:
            each.add(arrays, batches, visits)

    def after(self, arrays: Arrays, visits: Counts, visited: Counts) -> Arrays:
        """The arrays after an epoch that left ``arrays``, which may be overwritten.

        ``visits`` of the run so far, those of this epoch included, and ``visited`` in it, shape (samples,).
        """
        ended = {
            name: array
            for each in self._kept
            for name, array in each.end(self.finished, arrays, visits, visited).items()
        }
        return self.finished | ended

    def wanted(self, arrays: Mapping[str, Array], *, within: bool) -> dict[str, np.dtype]:
        """The dtypes of what a state with these arrays must have; ``within`` an epoch also of those that it changes."""
        kinds = {name: array.dtype for name, array in self.finished.items()}
        kinds |= wanted_guess(arrays, GUESS)
        opened = {f"{OPEN}{name}": kind for name, kind in kinds.items()} | wanted_guess(arrays, f"{OPEN}{GUESS}")
        return kinds | (opened if within else {})

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take over those in a state that was checked for what is :meth:`wanted`."""
        self.finished = {name: arrays[name].copy() for name in (*self.finished, GUESS) if name in arrays}

    def saved_open(self, arrays: Mapping[str, Array]) -> Arrays:
        """Copies of those in a state as its open epoch had changed them."""
        names = (*self.finished, *({GUESS} - self.finished.keys()))
        return {name: arrays[f"{OPEN}{name}"].copy() for name in names if f"{OPEN}{name}" in arrays}


class _Watched:
    """The arrays of policies and other watchers, which change them visit by visit."""

    def __init__(self, owners: Sequence[tuple[Watcher, list[str]]]) -> None:
        self._owners = owners

    def begin(self, finished: Arrays) -> Arrays:
        """Copies of them, as an epoch begins."""
        return {name: finished[name].copy() for _, names in self._owners for name in names}

    def add(self, arrays: Arrays, batches: Batches, visits: Counts) -> None:
        """Let each watcher see the visits of some batches, each sample's one at a time."""
        if not self._owners:
            return
        ids, of_batch = batches.ids, np.repeat(batches.means, batches.sizes)
        losses = np.asarray(batches.losses, dtype=np.float64)
        for now in rounds(ids, visits):
            for watcher, names in self._owners:
                given = {name: arrays[name] for name in names}
                watcher.update(given, ids[now], losses[now], of_batch[now])
                if given.keys() != set(names) or any(given[name] is not arrays[name] for name in names):
                    raise PrunedataError(
                        f"Expected {_name(watcher)}.update() to change its arrays in place, as in "
                        "arrays['loss'][ids] = losses. Got other arrays in their place."
                    )

    def end(self, finished: Arrays, arrays: Arrays, visits: Counts, visited: Counts) -> Arrays:
        """They are as the epoch left them."""
        return {name: arrays[name] for _, names in self._owners for name in names}


def _name(watcher: object) -> str:
    return type(watcher).__name__
