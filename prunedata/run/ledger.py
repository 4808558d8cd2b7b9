"""What a run has recorded: of each sample, of the open epoch, and of every finished one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from prunedata.errors import PrunedataError
from prunedata.policies.protocol import Known, Watcher
from prunedata.run.counts import SampleCounts, Tally, find_hits
from prunedata.run.epoch import Epoch
from prunedata.run.meter import Meter
from prunedata.run.ranks.waiting import Settled, Shared, WaitingLosses
from prunedata.run.sample_arrays import SampleArrays
from prunedata.store.state import COUNTING, RunState
from prunedata.types import Arrays, Ids, Means, Recorded, Sizes

__all__ = ["Ledger"]


class Ledger:
    """The records of one run, which knows how to give its own state and how to go on from it.

    Parameters
    ----------
    samples : int
    longest_window, epochs : int
        The most that a count, and the most that a total, can reach with one visit an epoch.
    watchers : sequence of Watcher
        Who keeps arrays of its own.
    """

    def __init__(self, samples: int, longest_window: int, epochs: int, watchers: Sequence[Watcher]) -> None:
        self.known = SampleCounts.empty(samples, longest_window, epochs)
        """Counts, hits and visits after all finished epochs."""
        self.arrays = SampleArrays(samples, watchers)
        self.tally = Tally(samples)
        """The open epoch's visits and hits."""
        self.waiting: WaitingLosses | None = None
        """The open epoch's losses, if their batches are shared with other processes."""
        self.meter = Meter()
        """What the open or last epoch costs."""
        self.history: list[dict[str, Any]] = []
        """A record of each finished epoch."""
        self.next_epoch = 0
        """Number of the epoch that is open, or else of the next."""

    def begin_epoch(self) -> None:
        """Begin an epoch: nothing of it has been observed."""
        self.tally.clear()
        self.arrays.begin()
        self.meter.begin()
        self.waiting = None

    def add(self, ids: Ids, losses: Recorded, sizes: Sizes, means: Means, tolerance: float) -> None:
        """Record a block of the open epoch: batches of such sizes and mean losses, one after the other."""
        if self.waiting is None or not self.waiting.add(ids, losses):
            self.tally.add(ids, find_hits(losses, sizes, means, tolerance))
            self.arrays.add(ids, losses, sizes, means, self.tally.visits)
        else:
            self.tally.add(ids, np.zeros(ids.size, np.bool_))
        # One after the other: the sum must not depend on where the blocks were cut.
        sums = means * sizes
        sums[0] += self.meter.loss_sum
        self.meter.loss_sum = float(sums.cumsum()[-1])
        self.meter.visits += ids.size

    def wait(self, shared: Shared | None) -> None:
        """Let losses wait from now on, unless they do already."""
        if shared is not None and self.waiting is None:
            self.waiting = WaitingLosses.none(shared, self.tally.packed.size)

    def settled(self, settled: Settled, tolerance: float) -> tuple[Tally, Arrays]:
        """The open epoch's tally and arrays, with what waits. Copies."""
        tally, before = self.tally.copy(), self.arrays.open
        tally.hit(settled.ids[settled.hits(tolerance)])
        self.arrays.open = {name: array.copy() for name, array in before.items()}
        try:
            if settled.ids.size:
                self.arrays.add(settled.ids, settled.losses, settled.sizes, settled.means, tally.visits)
            return tally, self.arrays.open
        finally:
            self.arrays.open = before

    def settle(self, epoch: Epoch, tolerance: float) -> None:
        """Let nothing wait: what waits is all that any process has observed."""
        if self.waiting is not None:
            settled = self.waiting.settle(epoch, self.tally.packed != 0)
            self.tally, self.arrays.open = self.settled(settled, tolerance)
            self.waiting = None

    def end_epoch(self, tally: Tally, arrays: Arrays, record: dict[str, Any], *, reset: bool) -> None:
        """Take over the finished epoch, merged over all processes; ``reset`` says that a window began with it.

        The record gets ``high``, how many visits had a loss above a blind guess, if that is watched.
        """
        if "high" in arrays:
            after, before = (int(one["high"].sum(dtype=np.int64)) for one in (arrays, self.arrays.finished))
            record["high"] = after - before
        self.known = self.known.after(tally, reset=reset)
        self.arrays.open = arrays
        self.arrays.finish()
        self.history.append(record)
        self.next_epoch += 1

    def knowledge(self, num_pruned: int) -> Known:
        """What a policy is shown when an epoch is about to be pruned."""
        known = self.known
        return Known(known.counts, known.hits, known.visits, self.arrays.finished, num_pruned)

    # -- its state

    def state(self, *, within: bool) -> Arrays:
        """All arrays by the names under which they are saved; ``within`` an epoch also those that it changes."""
        own: Arrays = {"tally": self.tally.packed} if within else {}
        if within and self.waiting is not None:
            own |= self.waiting.arrays
        return self.known.arrays() | self.arrays.standing(within=within) | own

    def check(self, state: RunState) -> None:
        """Raise :class:`PrunedataError` if :meth:`restore` could not go on from a state."""
        waiting = WaitingLosses.wanted(state.shared) if state.open and state.shared is not None else {}
        state.check_arrays(self.arrays.wanted(within=state.open) | waiting)
        unknown = [name for name in ("seconds", "overhead", "loss_sum") if not _is_number(state.meter.get(name))]
        if unknown:
            raise PrunedataError(
                f"Expected the numbers {', '.join(unknown)} in the state's meter. Got {state.meter!r}."
            )
        if state.open and state.arrays["tally"].dtype != self.tally.packed.dtype:
            raise PrunedataError(f"Expected a tally of uint32. Got {state.arrays['tally'].dtype}.")

    def restore(self, state: RunState) -> None:
        """Go on from a checked state."""
        self.known = SampleCounts(**{name: state.arrays[name].copy() for name in COUNTING})
        self.arrays.restore(state.arrays, within=state.open)
        self.history = [dict(record) for record in state.history]
        self.next_epoch = state.epoch
        self.waiting = None
        if state.open and state.shared is not None:
            self.waiting = WaitingLosses.restored(state.shared, state.arrays)
        sums = {name: state.meter[name] for name in ("seconds", "overhead", "loss_sum")}
        self.meter.begin(**sums, visits=state.meter.get("visits", state.observed))
        if state.open:
            self.tally.packed[:] = state.arrays["tally"]
            self.tally.observed = state.observed


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
