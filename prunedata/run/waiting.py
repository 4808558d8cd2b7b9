"""Losses that wait for the mean of their global batch, of which each process has observed a part."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from prunedata.counting.batches import Batches
from prunedata.run.epoch import Epoch
from prunedata.types import Arrays, Floats, Ids, Losses, Mask, Means, Recorded

LOSSES, STEPS = "open-waiting", "open-waiting-step"
"""Names of the saved arrays: the losses that wait, and the steps that they belong to."""


@dataclass(frozen=True)
class SharedBatches:
    """How several processes share an epoch: its order is cut into global batches, and each of them is shared."""

    size: int  # samples in a global batch
    shuffle: bool  # whether the order is random, as ``Epoch.order`` has it
    rest: bool = False  # whether batches are cut from what remained when the epoch was resumed, and not from all of it

    def begin(self, samples: int) -> None:
        """Do nothing, as an epoch begins."""

    def knows(self, ids: Ids) -> bool:
        """Return whether the global batches of these samples are known, which is always so."""
        return True

    def cut(self, epoch: Epoch, waits: Mask, settled: Mask) -> tuple[Ids, Ids, int]:
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
        others = np.flatnonzero(waits & ~epoch.keep)  # samples observed though left out make a batch of their own
        return (
            np.concatenate([*ids, others]),
            np.concatenate([*numbers, np.full(others.size, batches)]),
            batches + 1,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes, as a saved run has them."""
        return asdict(self)


class SharedSteps:
    """How several processes share a stream: each reads a share, and all batches of one step are one global batch."""

    def __init__(self) -> None:
        self.steps = np.zeros(0, dtype=np.int32)
        """The step of the epoch in which this process got each sample, shape (samples,), -1 for none. Empty unless
        losses wait."""
        self.taken = 0  # steps so far, the same in all processes

    def begin(self, samples: int) -> None:
        """Drop the steps of the last epoch, as an epoch begins."""
        self.steps, self.taken = np.full(samples, -1, dtype=np.int32), 0

    def take(self, ids: Any) -> None:
        """Count a step of all processes, in which this one has the samples ``ids``, or none."""
        if self.steps.size:
            self.steps[ids] = self.taken
            self.taken += 1

    def knows(self, ids: Ids) -> bool:
        """Return whether these samples came in steps that all processes took."""
        return bool((self.steps[ids] >= 0).all())

    def cut(self, epoch: Epoch, waits: Mask, settled: Mask) -> tuple[Ids, Ids, int]:
        """Return the samples that wait, step after step, the step of each, and how many steps there were."""
        ids = np.flatnonzero(waits)
        ids = ids[np.argsort(self.steps[ids], kind="stable")]
        return ids, self.steps[ids].astype(np.int64), self.taken

    def to_dict(self) -> dict[str, Any]:
        """Return that there are steps, as a saved run has it beside the array of the steps."""
        return {"steps": True}


Shared = SharedBatches | SharedSteps


def in_words(shared: Shared | None) -> str:
    """Return how a loader shares batches, for messages."""
    if shared is None:
        return "batches of each process's own"
    return "steps of a stream" if isinstance(shared, SharedSteps) else f"batches of {shared.size} samples of all"


class WaitingLosses:
    """The losses that a process observed in the open epoch, one for each sample.

    ``losses`` is an ndarray of float64, shape (samples,), with minus infinity for samples without one.
    """

    def __init__(self, shared: Shared, losses: Losses) -> None:
        self.shared, self.losses = shared, losses

    @classmethod
    def none(cls, shared: Shared, samples: int) -> "WaitingLosses":
        """Return the object for an epoch that begins: no loss waits."""
        shared.begin(samples)
        return cls(shared, np.full(samples, -np.inf))

    @classmethod
    def restored(cls, shared: dict[str, Any], arrays: Arrays) -> "WaitingLosses":
        """Return the saved losses; ``shared`` is what ``to_dict`` returned."""
        if "steps" not in shared:
            return cls(SharedBatches(**shared), arrays[LOSSES].copy())
        steps = SharedSteps()
        steps.steps = arrays[STEPS].copy()
        return cls(steps, arrays[LOSSES].copy())

    @property
    def arrays(self) -> Arrays:
        """The arrays to save, by name; not copies."""
        return {LOSSES: self.losses} | ({STEPS: self.shared.steps} if isinstance(self.shared, SharedSteps) else {})

    def add(self, ids: Ids, losses: Recorded) -> bool:
        """Add losses that wait; return False if their global batches are unknown."""
        known = self.shared.knows(ids)
        if known:
            self.losses[ids] = losses
        return known

    @property
    def waits(self) -> Mask:
        """The samples whose losses wait, shape (samples,)."""
        return self.losses > -np.inf

    def level(self, rank: int, processes: int, add_up: Callable[[Floats], Floats]) -> None:
        """Set the number of steps to that of all processes, as each sums up all steps."""
        if isinstance(self.shared, SharedSteps):
            taken = np.zeros(processes)
            taken[rank] = max(self.shared.taken, int(self.shared.steps.max(initial=-1)) + 1)
            self.shared.taken = int(add_up(taken).max())

    def settle(
        self,
        epoch: Epoch,
        settled: Mask,
        add_up: Callable[[Floats], Floats] | None = None,
        epoch_sums: tuple[float, float] = (0.0, 0.0),
    ) -> tuple[Batches, Means]:
        """Return the losses that wait, with the means of their global batches; and what to compare the losses with.

        That is the same mean, except for a batch of one sample, whose loss is never above it: for such a batch it is
        the mean of the epoch so far.

        ``settled`` is a mask of the samples that any process had observed when the epoch was last resumed.
        ``add_up`` adds up an array over all processes, element by element; without it the losses that wait are those of
        all. ``epoch_sums`` are the sum of this process's losses in the epoch, those that wait included, and their
        number.
        """
        which, number, batches = self.shared.cut(epoch, self.waits, settled)
        if epoch.zero_weights:  # only after the cut: batches consist of all that was delivered
            trained = epoch.trained[which]
            which, number = which[trained], number[trained]
        losses = self.losses[which]
        if add_up is None:  # without other processes, number the batches anew
            number, batches, add_up = np.unique(number, return_inverse=True)[1], 0, lambda sums: sums
        sums = np.bincount(number, weights=losses, minlength=batches)
        sizes = np.bincount(number, minlength=batches)
        group = add_up(np.stack([np.append(sums, epoch_sums[0]), np.append(sizes, epoch_sums[1])]))
        (group_sums, group_sizes), (epoch_sum, epoch_size) = group[:, :-1], group[:, -1]
        earlier_size = max(0.0, epoch_size - group_sizes.sum())  # losses that were settled before, or did not wait
        earlier_sum = epoch_sum - group_sums.sum() if earlier_size > 0 else 0.0
        here = np.flatnonzero(sizes)
        means = group_sums[here] / group_sizes[here]
        so_far = (group_sums.cumsum() + earlier_sum)[here] / (group_sizes.cumsum() + earlier_size)[here]
        return Batches(which, losses, sizes[here], means), np.where(group_sizes[here] == 1, so_far, means)
