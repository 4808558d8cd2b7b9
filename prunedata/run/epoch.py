"""One epoch of a run: what to train on, by the scores of its policy."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from prunedata.checks import warn
from prunedata.errors import PrunedataError, RandomPruningWarning
from prunedata.policies.protocol import Known, Policy, Weigher
from prunedata.policies.selection import keep_mask
from prunedata.run.order import cut_batches, epoch_order
from prunedata.types import Array, Mask, Roles, SomeIds, Weights

Some = TypeVar("Some", bound=np.generic)


class Role:
    """The role of a sample in an epoch. uint8, as comparing with an enum would take 64 bits each."""

    LEFT_OUT = np.uint8(0)
    """Not delivered; a trainer that delivers it all the same gives its loss weight 0."""
    TRAINED = np.uint8(1)
    ZERO_WEIGHT = np.uint8(2)
    """Delivered and observed with weight 0: not part of any mean, and not recorded."""
    HELD_OUT = np.uint8(3)
    """Like ZERO_WEIGHT, and its losses give the validation figure."""


@dataclass(frozen=True, eq=False)
class Epoch:
    """One epoch of a run: what to train on.

    Attributes
    ----------
    number : int
        From 0.
    pruned : bool
        Whether the schedule prunes it.
    roles : ndarray of uint8, shape (samples,)
        The :class:`Role` of each sample. Read-only.
    seed : int
        The run's seed, which with the number decides the order.
    weights : ndarray of float32, shape (samples,), or None
        The weight of each sample's loss; 0 for samples that are not trained on. None if all are 1. Train on the mean of
        ``factors(ids) * losses``, and observe the losses without weights. Read-only.
    zero_weights : bool
        Whether samples are delivered with weight 0, as with ``leave_out="weight"`` or ``holdout``. The mean of
        ``factors(ids) * losses`` is then the mean over the trained samples. Observe all losses: the run knows which to
        record.
    rest : ndarray of bool, shape (samples,), or None
        In an epoch that was resumed: True for the samples that were not observed before. Read-only.
    keep : ndarray of bool, shape (samples,)
        True for the samples that are delivered (the paper's KeepList); all if the run leaves out by weight. Read-only.
    kept : int
        The number of samples that are delivered.
    trained : ndarray of bool, shape (samples,)
        True for the samples that are trained on; ``keep`` itself unless some have weight 0. Read-only.
    """

    number: int
    pruned: bool
    roles: Roles
    seed: int
    weights: Weights | None = None
    zero_weights: bool = False
    rest: Mask | None = None
    keep: Mask = field(init=False)
    kept: int = field(init=False)
    trained: Mask = field(init=False)
    _applied: list[bool] = field(default_factory=list, repr=False)
    """Not empty once the loop, or an adapter for it, has applied the weights."""

    def __post_init__(self) -> None:
        keep = read_only(self.roles != Role.LEFT_OUT)
        trained = read_only(self.roles == Role.TRAINED) if self.zero_weights else keep
        for name, value in {"keep": keep, "kept": int(np.count_nonzero(keep)), "trained": trained}.items():
            object.__setattr__(self, name, value)

    @property
    def remaining(self) -> Mask:
        """True for the samples that are still to be delivered: ``keep`` itself, unless the epoch was resumed."""
        return self.keep if self.rest is None else self.rest

    @property
    def is_weighed(self) -> bool:
        """Whether delivered samples have weights other than 1, so that the loop has to apply them."""
        return self.weights is not None

    @property
    def is_applied(self) -> bool:
        """Whether the loop, or an adapter for it, has applied the weights."""
        return bool(self._applied)

    @property
    def unapplied(self) -> int:
        """How many delivered samples have weights other than 1, if the loop applied none in a whole epoch; else 0."""
        if not self.is_weighed or self.is_applied or self.remaining is not self.keep:
            return 0
        return int(np.count_nonzero(self._loss_weights(np.flatnonzero(self.keep)) != 1))

    def apply_weights(self) -> None:
        """Record that the loop trains on weighted losses: an adapter that multiplies them calls this."""
        self._applied[:] = [True]

    def detached(self) -> "Epoch":
        """Return a copy for adapters that pass weights on: reading them there is not recorded as applying them."""
        return replace(self, _applied=[])

    @property
    def trained_on(self) -> int:
        """How many samples are trained on."""
        return int(np.count_nonzero(self.trained))

    def counting(self, ids: SomeIds) -> int:
        """Return how many of some samples are trained on; ``ids`` is an array of int, shape (n,)."""
        return int(np.count_nonzero(self.trained[ids]))

    def loss_weights(self, ids: SomeIds) -> Weights:
        """Return the weight of each sample's loss in this epoch.

        0 for a sample that is left out (of this epoch, by weight, or for good) or held out; else the policy's weight,
        or 1. Train on the sum of weight times loss, divided by the number of trained samples (:meth:`counting`) in the
        whole batch of one optimizer step. A loop that calls this counts as one that applies the weights. Every adapter
        uses these weights, which are decided here alone.

        Parameters
        ----------
        ids : ndarray of int, shape (n,)

        Returns
        -------
        ndarray of float32, shape (n,)
        """
        self.apply_weights()
        return self._loss_weights(ids)

    def _loss_weights(self, ids: SomeIds) -> Weights:
        which = self.trained[ids]
        return which.astype(np.float32) if self.weights is None else np.where(which, self.weights[ids], np.float32(0))

    def factors(self, ids: SomeIds) -> Weights:
        """Return factors for the losses of a batch: train on the mean of ``factors(ids) * losses``.

        That is the mean over the trained samples of their losses times :meth:`loss_weights`; 0 if there are none.

        Parameters
        ----------
        ids : ndarray of int, shape (n,)

        Returns
        -------
        ndarray of float32, shape (n,)
        """
        weights, counting = self.loss_weights(ids), self.counting(ids)
        return weights if counting == len(ids) else weights * np.float32(len(ids) / max(1, counting))

    def __repr__(self) -> str:
        """One line: the arrays have as many numbers as there are samples."""
        of = f"kept={self.kept} of {self.keep.size}"
        left = int(np.count_nonzero(self.remaining))
        rest = "" if left == self.kept else f", remaining={left}"
        weighed = "" if self.weights is None else ", weighted"
        by_weight = f", trained={self.trained_on}" if self.zero_weights else ""
        return f"Epoch(number={self.number}, pruned={self.pruned}, {of}{rest}{by_weight}{weighed}, seed={self.seed})"

    def order_of(self, which: Mask, *, shuffle: bool = True) -> Iterator[npt.NDArray[np.integer]]:
        """Yield the ids of the samples in ``which``, a mask, in this epoch's order, in arrays of shape (n,)."""
        return epoch_order(which, seed=self.seed, epoch=self.number, shuffle=shuffle)

    def order(self, *, shuffle: bool = True) -> Iterator[npt.NDArray[np.integer]]:
        """Yield the remaining ids in this epoch's order, in arrays of shape (n,)."""
        return self.order_of(self.remaining, shuffle=shuffle)

    def batches(
        self, batch_size: int, *, shuffle: bool = True, drop_last: bool = False
    ) -> Iterator[npt.NDArray[np.integer]]:
        """Yield the remaining ids in this epoch's order, in arrays of ``batch_size``; the last may be smaller."""
        return cut_batches(self.order(shuffle=shuffle), batch_size, drop_last=drop_last)


def select(
    policy: Policy, known: Known, *, seed: int, epoch: int, among: Mask | None = None
) -> tuple[Mask, Weights | None]:
    """Return which samples a pruned epoch keeps by a policy, and the weights of their losses, both read-only.

    With ``among``, a mask of shape (samples,), the policy sees these samples only.
    """
    if among is not None:
        arrays = {name: array[among] for name, array in known.arrays.items()}
        few = Known(known.counts[among], known.hits[among], known.visits[among], arrays, known.num_pruned)
        keep, weights = select(policy, few, seed=seed, epoch=epoch)
        return _spread(keep, among), None if weights is None else _spread(weights, among)
    scores = _per_sample("scores", policy.scores(known), known)
    decides = known.num_pruned > 0 and policy.needs_losses and known.visits.any()
    if decides and not known.hits.any() and scores.min() == scores.max():
        warn(  # without the epoch's number, or each pruned epoch would warn anew
            f"Expected {type(policy).__name__} to rank samples by the hits of their losses. Got none so far, so that "
            "samples are left out at random. In batches of one sample no loss is above the mean, and with a high "
            'tolerance few are: use larger batches, a lower tolerance, or policy="auto", which needs no hits.',
            RandomPruningWarning,
        )
    keep = read_only(keep_mask(scores, known.num_pruned, seed=seed, epoch=epoch))
    if not isinstance(policy, Weigher):
        return keep, None
    weights = np.array(_per_sample("weights", policy.weights(keep, known), known), dtype=np.float32)
    weights[~keep] = 0
    return keep, read_only(weights)


def _spread(few: npt.NDArray[Some], among: Mask) -> npt.NDArray[Some]:
    """Return an array of some samples as one of all, with zeros for the others, read-only."""
    spread = np.zeros(among.size, few.dtype)
    spread[among] = few
    return read_only(spread)


def _per_sample(name: str, array: Array, known: Known) -> Array:
    if np.shape(array) != known.counts.shape:
        raise PrunedataError(
            f"Expected {name} of shape {known.counts.shape} from the policy, one for each sample. "
            f"Got shape {np.shape(array)}."
        )
    return array


def read_only(array: npt.NDArray[Some]) -> npt.NDArray[Some]:
    """Return the same array, made read-only."""
    array.flags.writeable = False
    return array
