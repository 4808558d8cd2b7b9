"""``watch``: wrap anything that yields batches with the ids of their samples in them, and leave out by weight."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

from prunedata.adapters.torch.items import as_ids
from prunedata.adapters.torch.losses import fits
from prunedata.adapters.torch.means import check_weights, mean_of
from prunedata.adapters.torch.run import TorchRun
from prunedata.checks import integer
from prunedata.errors import LossError, PrunedataError
from prunedata.run.adapter import Delivery
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds


def watch(
    batches: Iterable[Any], pruner: Pruner, *, ids: str | int | Callable[[Any], Any], ahead: int = 0
) -> "WatchedBatches":
    """Wrap anything that yields batches with ids in them. Samples are left out by weight 0.

    Use it for loaders that are not PyTorch's, or that cannot be rebuilt, such as those that prefetch to a device. They
    keep their own order and number of batches.

    Parameters
    ----------
    batches : iterable
        Yields the batches of an epoch whenever it is iterated. Samples that it does not yield need not be observed; one
        that it yields again is observed again.
    pruner : Pruner
        The run, with ``leave_out="weight"``, or with ``leave_out="nothing"``.
    ids : str, int or callable
        Where a batch has the ids of its samples: a key, a position, or a function of the batch that returns them. Ints,
        shape (n,), from 0 to ``pruner.samples - 1``.
    ahead : int
        How many batches the loop fetches before it trains on one. Then every batch has to be observed, in its order.

    Returns
    -------
    WatchedBatches
        Yields the batches unchanged. Call ``observe(losses)`` for each, and ``backward()`` on the result.

    Raises
    ------
    PrunedataError
        If the pruner leaves samples out by shortening epochs, or if several processes train, which would have to
        exchange how many of their samples are trained on.
    """
    if isinstance(batches, Iterator) or not isinstance(batches, Iterable):
        raise PrunedataError(
            f"Expected an iterable that yields the batches of every epoch. Got a {type(batches).__name__}: wrap its "
            "maker in an object whose __iter__ returns a new one."
        )
    if pruner.leave_out == "delivery":
        raise PrunedataError(
            'Expected a Pruner with leave_out="weight", as every epoch has all batches. Got one that shortens epochs.'
        )
    return WatchedBatches(batches, pruner, ids, integer("ahead", ahead, 0))


class WatchedBatches:
    """The batches that :func:`watch` returns."""

    def __init__(
        self, batches: Iterable[Any], pruner: Pruner, ids: str | int | Callable[[Any], Any], ahead: int
    ) -> None:
        self.batches, self._pruner, self._where, self._ahead = batches, pruner, ids, ahead
        self._run = pruner.attach(TorchRun(pruner))
        self._refuse_ranks()
        self._pending: deque[SomeIds] = deque()
        pruner.observed_by(self)

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        self._refuse_ranks()
        epoch = self._pruner.current
        delivery = Delivery(epoch.number, given=epoch.keep)
        given = np.zeros(self._pruner.samples, dtype=np.bool_)
        self._run.add_delivery(self, delivery)
        self._pending.clear()
        for batch in self.batches:
            ids = self._ids_of(batch)
            given[ids] = True
            self._pending.append(ids)
            yield batch
        delivery.given = given
        delivery.end()

    @property
    def awaits_losses(self) -> bool:
        """Whether a delivered batch waits for its losses."""
        return bool(self._pending)

    def observe(
        self,
        losses: torch.Tensor,
        *,
        weights: torch.Tensor | None = None,
        logits: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Record the losses of a batch, shape (n,), and return the mean over its trained samples.

        The batch is the oldest one that was fetched and not observed. In a resumed epoch, samples that were observed
        before are delivered again: they have weight 0, and are not recorded again. ``weights``, ``logits`` and
        ``labels`` are those of the ``observe`` of a wrapped DataLoader.
        """
        if not 0 < len(self._pending) <= self._ahead + 1:
            raise LossError(
                f"Expected 1 to {self._ahead + 1} batches that wait for their losses. Got {len(self._pending)}: "
                "observe each batch once, in its order, and give watch(..., ahead=n) if the loop fetches n ahead."
            )
        ids, epoch = self._pending.popleft(), self._pruner.current
        if weights is not None:
            check_weights(weights, losses)
        if labels is not None:
            self._pruner.see_labels(ids, labels, losses, logits)
        new = epoch.remaining[ids]
        with self._pruner.overhead:
            if not fits(ids, losses):
                self._run.recorder.add(ids, losses)  # raises, saying what is wrong
            if not new.any():
                return losses.sum() * 0
            if not new.all():
                which = torch.from_numpy(np.flatnonzero(new)).to(losses.device)
                ids, losses = ids[new], losses[which]
                weights, logits = (None if each is None else each[which] for each in (weights, logits))
            self._run.recorder.add(ids, losses, logits)
        return mean_of(epoch, ids, losses, float(epoch.counting(ids)), own=weights)

    def _ids_of(self, batch: Any) -> SomeIds:
        value = self._where(batch) if callable(self._where) else batch[self._where]
        ids = as_ids(value, self._pruner.samples)
        if ids is None:
            raise PrunedataError(
                f"Expected the ids of a batch, ints of shape (n,) from 0 to {self._pruner.samples - 1}. Got {value!r}: "
                "give ids= as the place where a batch has them."
            )
        return ids

    def _refuse_ranks(self) -> None:
        if self._run.group_size() > 1:
            raise PrunedataError(
                "Expected one process with watch(). Got several, which would have to exchange how many of their "
                "samples are trained on: use wrap() on a DataLoader with a DistributedSampler."
            )
