"""The counts and arrays of a run after its finished epochs, and the record of each epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from prunedata.counting.counts import SampleCounts, Tally
from prunedata.counting.guess import Guess
from prunedata.counting.sample_arrays import SampleArrays
from prunedata.policies.protocol import Watcher
from prunedata.policies.rules import High
from prunedata.store.state import COUNTING, OPEN, RunState
from prunedata.types import Arrays

if TYPE_CHECKING:
    from prunedata.run.options import RunOptions


class Ledger:
    """Counts, arrays and history of one run, to be saved and restored."""

    def __init__(self, options: RunOptions) -> None:
        epochs, labels = options.schedule.epochs, options.labels
        watchers: list[Watcher] = [] if options.classes is None else [High(options.classes, epochs)]
        watchers += [options.chosen] if isinstance(options.chosen, Watcher) else []
        guess = Guess(options.classes)
        if labels is not None:  # names stand in their order in logits, so that none may be missing there
            classes = len(labels.classes) if labels.named else options.classes
            guess = Guess(classes, (labels.numbers, labels.places))
        self.counts = SampleCounts.empty(options.samples)  # counts, hits and visits
        self.arrays = SampleArrays(options.samples, watchers, guess)  # those of watchers
        self.history: list[dict[str, Any]] = []  # a record of each epoch
        self.sketch: str | None = None  # of what the last pruned epoch left out, see prunedata/policies/agreement.py
        self.next_epoch = 0  # number of the epoch that is open, or else of the next

    def end_epoch(self, tally: Tally, arrays: Arrays, record: dict[str, Any], *, reset: bool) -> None:
        """Add a finished epoch, merged over all processes; ``reset`` if a new window began with it.

        If the run counts visits with a loss above that of a blind guess, the record gets their number, ``high``.
        """
        if "high" in arrays:
            after, before = (int(one["high"].sum(dtype=np.int64)) for one in (arrays, self.arrays.finished))
            record["high"] = after - before
        self.counts = self.counts.after(tally, reset=reset)
        self.arrays.finished = self.arrays.after(arrays, self.counts.visits, tally.visits)
        self.history.append(record)
        self.next_epoch += 1

    # -- its state

    @property
    def saved(self) -> Arrays:
        """The arrays to save, by name; not copies."""
        return self.counts._asdict() | self.arrays.finished

    def check(self, state: RunState) -> None:
        """Raise :class:`PrunedataError` unless a state has the arrays of this run's policy, in their own dtypes."""
        for prefix in ("", OPEN) if state.open else ("",):
            state.check_arrays({f"{prefix}{name}": array.dtype for name, array in self.arrays.finished.items()})

    def restore(self, state: RunState) -> None:
        """Continue from a checked state."""
        self.counts = SampleCounts(**{name: state.arrays[name].copy() for name in COUNTING})
        self.arrays.restore(state.arrays)
        self.history = [dict(record) for record in state.history]
        self.sketch, self.next_epoch = state.sketch, state.epoch
