"""The counts and arrays of a run after its finished epochs, and the record of each epoch."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from prunedata.counting.counts import SampleCounts, Tally
from prunedata.counting.guess import Guess
from prunedata.counting.sample_arrays import SampleArrays
from prunedata.counting.waiting import WaitingLosses
from prunedata.policies.protocol import Known, Watcher
from prunedata.store.state import COUNTING, RunState
from prunedata.types import Arrays

__all__ = ["Ledger"]


class Ledger:
    """Counts, arrays and history of one run, to be saved and restored.

    Parameters
    ----------
    samples : int
    longest_window, epochs : int
        The most that a count, and the most that a total, can reach with one visit an epoch.
    watchers : sequence of Watcher
        Those that keep arrays of their own.
    guess : Guess, optional
        The watcher of guesses, see :class:`SampleArrays`.
    """

    def __init__(
        self, samples: int, longest_window: int, epochs: int, watchers: Sequence[Watcher], guess: Guess | None = None
    ) -> None:
        self.counts = SampleCounts.empty(samples, longest_window, epochs)
        """Counts, hits and visits."""
        self.arrays = SampleArrays(samples, watchers, guess)
        """Those of watchers."""
        self.history: list[dict[str, Any]] = []
        """A record of each epoch."""
        self.next_epoch = 0
        """Number of the epoch that is open, or else of the next."""

    def end_epoch(self, tally: Tally, arrays: Arrays, record: dict[str, Any], *, reset: bool) -> None:
        """Add a finished epoch, merged over all processes; ``reset`` if a new window began with it.

        The record gets ``high``, how many visits had a loss above that of a blind guess, if the run counts these.
        """
        if "high" in arrays:
            after, before = (int(one["high"].sum(dtype=np.int64)) for one in (arrays, self.arrays.finished))
            record["high"] = after - before
        self.counts = self.counts.after(tally, reset=reset)
        self.arrays.finished = self.arrays.after(arrays, self.counts.visits, tally.visits)
        self.history.append(record)
        self.next_epoch += 1

    def knowledge(self, num_pruned: int, arrays: Arrays) -> Known:
        """Return what a policy may use to prune the next epoch, with these arrays."""
        counts = self.counts
        return Known(counts.counts, counts.hits, counts.visits, arrays, num_pruned)

    # -- its state

    @property
    def saved(self) -> Arrays:
        """The arrays to save, by name; not copies."""
        return self.counts.arrays() | self.arrays.finished

    def check(self, state: RunState) -> None:
        """Raise :class:`PrunedataError` if a run of these records could not continue from a state."""
        waiting = WaitingLosses.wanted(state.shared) if state.open and state.shared is not None else {}
        tally = {"tally": np.dtype("<u4")} if state.open else {}
        state.check_arrays(self.arrays.wanted(state.arrays, within=state.open) | waiting | tally)

    def restore(self, state: RunState) -> None:
        """Continue from a checked state."""
        self.counts = SampleCounts(**{name: state.arrays[name].copy() for name in COUNTING})
        self.arrays.restore(state.arrays)
        self.history = [dict(record) for record in state.history]
        self.next_epoch = state.epoch
