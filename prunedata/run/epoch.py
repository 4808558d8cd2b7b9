"""One epoch of a run: what to train on, and whether it was all seen."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from prunedata.errors import PrunedataError, SkippedSamples
from prunedata.policies.protocol import Known, Policy, Weigher
from prunedata.run.counts import Tally
from prunedata.run.order import cut_batches, epoch_order
from prunedata.run.selection import keep_mask
from prunedata.types import Array, Mask, Weights

__all__ = ["Delivery", "Epoch", "Mask", "Weights", "read_only", "select"]

Some = TypeVar("Some", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Epoch:
    """One epoch of a run: what to train on.

    Attributes
    ----------
    number : int
        From 0.
    pruned : bool
        Whether the schedule prunes it.
    keep : ndarray of bool, shape (samples,)
        True for the samples to train on: KeepList. Read-only.
    kept : int
        How many.
    remaining : ndarray of bool, shape (samples,)
        ``keep``; in a run that was resumed in the middle of this epoch, without the samples observed before.
    seed : int
        The run's seed, which with the number decides the order.
    weights : ndarray of float32, shape (samples,), or None
        How much the loss of each sample counts, by the policy; 0 for pruned samples. None if all count alike. Train on
        the mean of ``weights[ids] * losses``, and observe the losses as they are. Read-only.
    """

    number: int
    pruned: bool
    keep: Mask
    kept: int
    remaining: Mask
    seed: int
    weights: Weights | None = None

    def order(self, *, shuffle: bool = True) -> Iterator[npt.NDArray[np.integer]]:
        """Yield the remaining ids in this epoch's order, in arrays of shape (n,)."""
        return epoch_order(self.remaining, seed=self.seed, epoch=self.number, shuffle=shuffle)

    def batches(
        self, batch_size: int, *, shuffle: bool = True, drop_last: bool = False
    ) -> Iterator[npt.NDArray[np.integer]]:
        """Yield the remaining ids in this epoch's order, in arrays of ``batch_size``, the last perhaps smaller."""
        return cut_batches(self.order(shuffle=shuffle), batch_size, drop_last=drop_last)


def select(policy: Policy, known: Known, *, seed: int, epoch: int) -> tuple[Mask, Weights | None]:
    """Ask a policy which samples a pruned epoch keeps, and what their losses weigh. Both are read-only."""
    scores = _one_a_sample("scores", policy.scores(known), known)
    keep = read_only(keep_mask(scores, known.pruned, seed=seed, epoch=epoch))
    if not isinstance(policy, Weigher):
        return keep, None
    weights = _one_a_sample("weights", policy.weights(keep, known), known)
    return keep, read_only(np.array(weights, dtype=np.float32))


def _one_a_sample(name: str, array: Array, known: Known) -> Array:
    if np.shape(array) != known.counts.shape:
        raise PrunedataError(
            f"Expected {name} of shape {known.counts.shape} from the policy, one a sample. Got shape {np.shape(array)}."
        )
    return array


def read_only(array: npt.NDArray[Some]) -> npt.NDArray[Some]:
    """The same array, which from now on cannot be changed."""
    array.flags.writeable = False
    return array


@dataclass
class Delivery:
    """What a loader says it did in the open epoch, and the reckoning at its end.

    Attributes
    ----------
    delivered : int or None
        Samples delivered so far; None if no loader speaks.
    left_out : int
        Kept samples that it will not deliver by the user's own settings, as ``drop_last``.
    excused : int
        Kept samples beside these that the user excused.
    exhausted : bool
        Whether it has come to its end.
    """

    delivered: int | None = None
    left_out: int = 0
    excused: int = 0
    exhausted: bool = False

    @property
    def allowed(self) -> int:
        """Kept samples that need not be observed."""
        return self.left_out + self.excused

    def is_complete(self, epoch: Epoch, tally: Tally) -> bool:
        """Whether nothing of the epoch is left to train on."""
        return _missed(epoch, tally) <= self.allowed or (self.exhausted and not tally.observed)

    def check(self, epoch: Epoch, tally: Tally, *, needs_losses: bool) -> None:
        """Raise :class:`SkippedSamples` if kept samples were not observed.

        Where the policy needs no losses and none came, what the loader delivered has to do.
        """
        if needs_losses or tally.observed:
            missed = _missed(epoch, tally) - self.allowed
        else:
            missed = 0 if self.delivered is None else int(epoch.remaining.sum()) - self.allowed - self.delivered
        if missed <= 0:
            return
        self.exhausted = False  # who mends the loop and runs it again gets what is missing
        told = ""
        if self.delivered is not None:
            undelivered = min(missed, max(0, int(epoch.remaining.sum()) - self.allowed - self.delivered))
            told = (
                f" The loader did not deliver {undelivered} of them (was the loop left early, or its length frozen?); "
                f"{missed - undelivered} were delivered, but their losses not observed."
            )
        raise SkippedSamples(
            f"Expected all {epoch.kept - self.allowed} kept samples of epoch {epoch.number} to be observed. "
            f"Got {missed} that were not.{told} Call observe() for every batch of the epoch."
        )


def _missed(epoch: Epoch, tally: Tally) -> int:
    return int(np.count_nonzero(epoch.keep & (tally.visits == 0)))
