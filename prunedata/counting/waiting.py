"""Losses that wait for the mean of their global batch, of which each process has seen a part."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from prunedata.counting.batches import Batches
from prunedata.types import Arrays, Floats, Ids, Losses, Mask, Means, Recorded

__all__ = ["Ordered", "Shared", "SharedBatches", "SharedSteps", "WaitingLosses", "in_words"]

LOSSES, STEPS = "open-waiting", "open-waiting-step"
"""Under these names losses that wait are saved, and the steps that they are of."""


class Ordered(Protocol):
    """What is needed of an epoch: which samples it keeps, and in which order."""

    @property
    def keep(self) -> Mask:
        """True for the samples that are kept, shape (samples,)."""

    @property
    def trained(self) -> Mask:
        """True for those of them that are trained on, shape (samples,)."""

    @property
    def zero_weights(self) -> bool:
        """Whether there may be others."""

    def order_of(self, which: Mask, *, shuffle: bool = True) -> Iterator[npt.NDArray[np.integer]]:
        """Yield the ids of some samples in the epoch's order, in arrays of shape (n,)."""


class Processes(Protocol):
    """What is needed of the processes that train together."""

    processes: int
    rank: int

    def add_up(self, numbers: Floats) -> Floats:
        """Add up an array over all processes, element by element."""


@dataclass(frozen=True)
class SharedBatches:
    """How several processes share an epoch: its order is cut into global batches, and each of them is shared.

    Attributes
    ----------
    size : int
        Samples in a global batch.
    shuffle : bool
        Whether the order is random, as ``Epoch.order`` has it.
    rest : bool
        Whether the batches are cut from what had remained when the epoch was gone on with, and not from all of it.
    """

    size: int
    shuffle: bool
    rest: bool = False

    def begin(self, samples: int) -> None:
        """An epoch begins: nothing to forget."""

    def knows(self, ids: Ids) -> bool:
        """Whether it is known which global batches these samples are of."""
        return True

    def cut(self, epoch: Ordered, waits: Mask, settled: Mask) -> tuple[Ids, Ids, int]:
        """Return the samples that wait, batch after batch, the batch of each, and how many batches there are."""
        ids: list[Ids] = []
        numbers: list[Ids] = []
        place = 0
        rest = epoch.keep & ~settled if self.rest else epoch.keep
        for piece in epoch.order_of(rest, shuffle=self.shuffle):
            own = np.flatnonzero(waits[piece])
            ids.append(piece[own].astype(np.int64, copy=False))
            numbers.append((own + place) // self.size)
            place += piece.size
        batches = -(-place // self.size)
        others = np.flatnonzero(waits & ~epoch.keep)  # pruned, but observed all the same: a batch of their own
        return (
            np.concatenate([*ids, others]),
            np.concatenate([*numbers, np.full(others.size, batches)]),
            batches + 1,
        )

    def to_dict(self) -> dict[str, Any]:
        """As a saved run has it."""
        return asdict(self)


class SharedSteps:
    """How several processes share a stream: each reads a share, and all batches of one step are one global batch.

    Attributes
    ----------
    steps : ndarray of int32, shape (samples,)
        In which step of the epoch this process got a sample, -1 for none. Empty unless losses wait for it.
    taken : int
        Steps so far, of all processes alike.
    """

    def __init__(self) -> None:
        self.steps = np.zeros(0, dtype=np.int32)
        self.taken = 0

    def begin(self, samples: int) -> None:
        """An epoch begins: forget the steps of the last."""
        self.steps, self.taken = np.full(samples, -1, dtype=np.int32), 0

    def take(self, ids: Any) -> None:
        """All processes take a step, in which this one has these samples, or none."""
        if self.steps.size:
            self.steps[ids] = self.taken
            self.taken += 1

    def knows(self, ids: Ids) -> bool:
        """Whether these samples came in steps that all processes took."""
        return bool((self.steps[ids] >= 0).all())

    def cut(self, epoch: Ordered, waits: Mask, settled: Mask) -> tuple[Ids, Ids, int]:
        """Return the samples that wait, step after step, the step of each, and how many steps there were."""
        ids = np.flatnonzero(waits)
        ids = ids[np.argsort(self.steps[ids], kind="stable")]
        return ids, self.steps[ids].astype(np.int64), self.taken

    def to_dict(self) -> dict[str, Any]:
        """As a saved run has it, beside an array of the steps."""
        return {"steps": True}


Shared = SharedBatches | SharedSteps


def in_words(shared: Shared | None) -> str:
    """How a loader shares batches, to be told."""
    if shared is None:
        return "batches of each process's own"
    return "steps of a stream" if isinstance(shared, SharedSteps) else f"batches of {shared.size} samples of all"


class WaitingLosses:
    """A loss for each sample that a process observed in the open epoch.

    Parameters
    ----------
    shared : SharedBatches or SharedSteps
    losses : ndarray of float64, shape (samples,)
        Minus infinity where none waits.
    """

    def __init__(self, shared: Shared, losses: Losses) -> None:
        self.shared, self.losses = shared, losses

    @classmethod
    def none(cls, shared: Shared, samples: int) -> "WaitingLosses":
        """None wait yet."""
        shared.begin(samples)
        return cls(shared, np.full(samples, -np.inf))

    @classmethod
    def restored(cls, shared: dict[str, Any], arrays: Arrays) -> "WaitingLosses":
        """Those that were saved; ``shared`` is what ``to_dict`` gave."""
        if "steps" not in shared:
            return cls(SharedBatches(**shared), arrays[LOSSES].copy())
        steps = SharedSteps()
        steps.steps = arrays[STEPS].copy()
        return cls(steps, arrays[LOSSES].copy())

    @staticmethod
    def wanted(shared: dict[str, Any]) -> dict[str, np.dtype]:
        """The dtypes of the arrays that belong to what ``to_dict`` gave."""
        return {LOSSES: np.dtype(np.float64)} | ({STEPS: np.dtype(np.int32)} if "steps" in shared else {})

    @property
    def arrays(self) -> Arrays:
        """All that is saved, by the names under which it is; not copies."""
        return {LOSSES: self.losses} | ({STEPS: self.shared.steps} if isinstance(self.shared, SharedSteps) else {})

    def add(self, ids: Ids, losses: Recorded) -> bool:
        """Let losses wait; return False if nobody can say for which means."""
        known = self.shared.knows(ids)
        if known:
            self.losses[ids] = losses
        return known

    @property
    def waits(self) -> Mask:
        """The samples whose losses wait, shape (samples,)."""
        return self.losses > -np.inf

    def level(self, processes: Processes) -> None:
        """Count as many steps as the process that had a sample in the latest one, as each sums up all of them."""
        if isinstance(self.shared, SharedSteps):
            taken = np.zeros(processes.processes)
            taken[processes.rank] = max(self.shared.taken, int(self.shared.steps.max(initial=-1)) + 1)
            self.shared.taken = int(processes.add_up(taken).max())

    def settle(
        self,
        epoch: Ordered,
        settled: Mask,
        add_up: Callable[[Floats], Floats] | None = None,
        epoch_sums: tuple[float, float] = (0.0, 0.0),
    ) -> tuple[Batches, Means]:
        """Return what waits, with the means of the global batches; and what to hold their losses against.

        That is the same mean, but of a batch of one sample, above which no loss lies, that of the epoch so far.

        Parameters
        ----------
        epoch : Epoch
            The open one.
        settled : ndarray of bool, shape (samples,)
            Which samples any process had observed when the epoch last went on.
        add_up : callable, optional
            Adds up an array over all processes, element by element. Without it what waits is that of all.
        epoch_sums : tuple of float
            The sum of this process's losses in the epoch, those that wait included, and how many there are.
        """
        which, number, batches = self.shared.cut(epoch, self.waits, settled)
        if epoch.zero_weights:  # only now: batches are cut from all that was delivered
            trained = epoch.trained[which]
            which, number = which[trained], number[trained]
        losses = self.losses[which]
        if add_up is None:  # no need to count as others do
            number, batches, add_up = np.unique(number, return_inverse=True)[1], 0, lambda sums: sums
        sums = np.bincount(number, weights=losses, minlength=batches)
        sizes = np.bincount(number, minlength=batches)
        total, of = add_up(np.stack([np.append(sums, epoch_sums[0]), np.append(sizes, epoch_sums[1])]))
        before = max(0.0, of[-1] - of[:-1].sum())  # what was settled or did not wait
        totals = total[:-1].cumsum() + (total[-1] - total[:-1].sum() if before > 0 else 0.0)
        here = np.flatnonzero(sizes)
        means = total[here] / of[here]
        so_far = totals[here] / (of[:-1].cumsum() + before)[here]
        return Batches(which, losses, sizes[here], means), np.where(of[here] == 1, so_far, means)
