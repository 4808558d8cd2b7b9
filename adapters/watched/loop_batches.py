"""The batches of a loop over a DataLoader, and which of the newest ones the target of a loss function is of."""

import math
from collections import deque
from collections.abc import Callable
from itertools import count
from threading import get_ident
from typing import Any
from weakref import ref

import torch
from torch.utils.data import DataLoader

from prunedata.adapters.torch.items import tensors_in
from prunedata.adapters.torch.losses import SMALL
from prunedata.adapters.watched.captured import Captured
from prunedata.adapters.watched.epochs import LONG
from prunedata.adapters.watched.loop_targets import is_of
from prunedata.errors import PrunedataError
from prunedata.types import SomeIds

__all__ = ["AHEAD", "MOST", "Batch", "LoaderPass", "NewestBatches"]

AHEAD, MOST = 3, 64
"""So many of the newest batches may be the one that is trained on, as a loop may fetch the next ones before: at least,
and at most, if it fetches as many in a row."""
LOOKS, EVERY = 8, 64
"""On a device, targets are compared in so many batches at the beginning of a pass, and then in one of so many: to
compare them waits for the device."""
_PLACES = count()


class LoaderPass:
    """One pass over a loader, which began after so many steps of optimizers."""

    def __init__(self, loader: DataLoader[Any], steps: int) -> None:
        self.loader, self.steps = loader, steps
        self.batches, self.length = 0, _length_of(loader)
        self.newest: Batch | None = None
        self.is_over = self.is_left = False
        """Whether it came to its end, and whether its epoch has ended."""
        self.waiting: list[tuple[SomeIds, Captured]] = []
        """Losses that may be of no training, until an optimizer takes a step."""
        self.is_other: bool | None = None
        """Whether it is over other data than those of the run, once that was compared."""


class Batch:
    """A batch that a loop has got, and the losses that were computed with its targets."""

    def __init__(self, of: LoaderPass, ids: SomeIds, batch: Any) -> None:
        self.of, self.ids, self.number = of, ids, of.batches
        of.batches, of.newest = of.batches + 1, self
        self.place = next(_PLACES)
        """Its place among all batches of this process."""
        parts = tensors_in(batch)
        self._leaves = [_held(each) for each in parts]
        self._samples = [each for each in parts if each.numel() <= SMALL]
        self.is_recorded = False
        """Whether losses of it were."""
        self._forget_calls()
        self.late: list[Batch] | None = None
        """Where to put it when a gradient comes."""

    def begin_again(self) -> None:
        """Forget the calls after they were recorded."""
        self.is_recorded = True
        self._forget_calls()

    def _forget_calls(self) -> None:
        self._calls = Captured(len(self.ids), self._samples)
        self._functions: list[Callable[..., Any]] = []
        self._trained: list[bool] = []
        """Whether the result of each call got a gradient."""

    @property
    def has_losses(self) -> bool:
        """Whether any loss of it was trained, and not recorded yet."""
        return any(self._trained)

    @property
    def is_trained(self) -> bool:
        """Whether any loss of it was trained."""
        return self.is_recorded or self.has_losses

    @property
    def captured(self) -> Captured:
        """The calls whose results were trained."""
        self._calls.keep(self._trained)
        return self._calls

    @property
    def is_looked_at(self) -> bool:
        """Whether targets on a device are compared with its own."""
        return self.number < LOOKS or not self.number % EVERY or self.of.is_over

    def has_itself(self, target: torch.Tensor) -> bool:
        """Whether a target is one of its tensors, and no copy."""
        return any(held() is target for held in self._leaves)

    def has(self, target: torch.Tensor) -> bool:
        """Whether a target on the host is one of its tensors, or a part of one, as :func:`is_of` compares them."""
        return any(
            leaf is not None and is_of(leaf.detach().cpu(), target) for leaf in (held() for held in self._leaves)
        )

    def was_trained_by(self, own: Callable[..., Any]) -> bool:
        """Whether a loss of this function was trained: its next call evaluates the batch again, as LBFGS and SAM do."""
        return any(trained and each is own for each, trained in zip(self._functions, self._trained, strict=True))

    def add(self, own: Callable[..., Any], result: torch.Tensor, args: Any, options: dict[str, Any]) -> None:
        """Add the call of a loss function."""
        if self._calls.take(own, result, args, options):
            trained, place = self._trained, len(self._trained)
            self._functions.append(own)
            trained.append(False)
            result.register_hook(lambda _: self._train(trained, place))

    def _train(self, trained: list[bool], place: int) -> None:
        trained[place] = True
        if self.late is not None:
            self.late.append(self)
            self.late = None


class NewestBatches:
    """The newest batches that a loop has got: it trains on one of them."""

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()
        self._fetched, self._in_a_row = 0, 1
        """The batches of a pass that the loop has fetched since it computed a loss, and before the newest loss."""
        self._ahead: int | None = None
        """How many batches the loop fetches before it trains on one, once that is known."""
        self._takes_newest: bool | None = None
        """Whether the loop trains on each batch as it comes, and on none later, once that is known."""
        self._thread, self._by_thread = get_ident(), False
        """The thread that fetched the last batch, and whether it is another than the one that trains."""
        self._is_unsure = False
        """Whether one of several batches with equal targets was chosen before that was known."""
        self.comes_back = False
        """Whether the loop trains again on a batch, as by a second optimizer, after it has fetched the next one."""
        self._others: set[Callable[..., Any]] = set()
        """Loss functions that were called with targets of no batch."""
        self._varies = False
        """Whether any of them was called with a batch's target of several numbers."""

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def lack_some(self) -> bool:
        """Whether the loop fetched more in a row than are kept here."""
        return self._in_a_row > MOST

    @property
    def last(self) -> Batch:
        """The one that the loop got last."""
        return self._batches[-1]

    def add(self, batch: Batch) -> None:
        """Add the next one."""
        is_next = bool(self._batches) and self._batches[-1].of is batch.of
        self._batches.append(batch)
        self._fetched, self._thread = self._fetched + 1 if is_next else 1, get_ident()
        most = MOST if self._by_thread else max(AHEAD, self._fetched, self._in_a_row)
        while len(self._batches) > min(most, MOST):
            self._batches.popleft()

    def clear(self) -> None:
        """Forget all."""
        self._batches.clear()

    def computes_loss(self) -> None:
        """The loop computes a loss, after it has fetched as many batches as it wants."""
        if self._fetched:
            self._fetched, self._in_a_row = 0, self._fetched

    def batch_of(self, target: Any, own: Callable[..., Any]) -> Batch | None:
        """Return the batch that has the target of a loss function; None if none has it, unless by chance.

        Raises :class:`PrunedataError` if batches that came before had equal targets, and another one was meant.
        """
        batch = self._likely(target, own) if isinstance(target, torch.Tensor) else None
        if batch is None or self._is_by_chance(batch, target, own):
            self._others.add(own)
            return None
        return batch

    def _likely(self, target: torch.Tensor, own: Callable[..., Any]) -> Batch | None:
        """Return the batch that has a target; None if none has it. Several may have equal ones."""
        newest = tuple(self._batches)
        self._by_thread |= self._thread != get_ident()
        for batch in reversed(newest):  # mostly the last
            if batch.has_itself(target):
                self._learn_from(batch)
                return batch
        if self._by_thread:  # how far ahead it is changes, but the loop takes the batches in their order
            begins = max((at for at, batch in enumerate(newest) if batch.is_trained), default=0)
            value, now, last = target.detach().cpu(), newest[begins].of, newest[-1].of
            found = [batch for batch in newest[begins:] if batch.has(value)]
            waiting = [batch for batch in found if not batch.is_trained] or found[:1]
            # A pass in between may have been a validation.
            return min(waiting, key=lambda batch: (batch.of is not now, batch.of is not last), default=None)
        likely = None
        # If it fetches several in a row, it trains on each of them in turn.
        if self._ahead is not None and self._ahead < len(newest) and max(self._fetched, self._in_a_row) == 1:
            likely = newest[-1 - self._ahead]
        looks = target.is_cpu or self.comes_back or own in self._others
        if likely is not None and not (looks or likely.is_looked_at):
            return likely
        value = target.detach().cpu()
        if likely is not None and likely.has(value) and not (self._ahead and likely.is_trained):
            return likely
        found = [batch for batch in newest if batch.has(value)]
        if not found:
            return None
        if len(found) == 1:
            self._learn_from(found[0])
        waiting = [each for each in found if not each.is_trained] or found[-1:]
        self._is_unsure |= len(waiting) > 1 and self._takes_newest is None
        batch = waiting[-1 if self._takes_newest else 0]  # else the loop may train on each of them in turn
        if not batch.of.is_over:  # else no further batch has come
            self._ahead = len(newest) - 1 - newest.index(batch)
        return batch

    def _learn_from(self, batch: Batch) -> None:
        """Learn which batches the loop trains on, from one that it surely computes a loss of."""
        if batch is not self.last:
            self._takes_newest = self._takes_newest if batch.is_trained else False
        elif self._takes_newest is None and not batch.of.is_over:
            self._takes_newest = True
            if self._is_unsure:
                raise PrunedataError("its first batches have equal targets, and which of them it trained on is unknown")

    def _is_by_chance(self, batch: Batch, target: torch.Tensor, own: Callable[..., Any]) -> bool:
        """Whether a target of one number may equal a tensor of its batch by chance, as a GAN's for its own images.

        A folder of images may have a single class. Where batches have several, one of only one class is right.
        """
        if self._varies or own not in self._others or target.numel() < 2 or batch.has_itself(target):
            return False
        self._varies = bool((target != target.flatten()[0]).any())
        return not self._varies


def _length_of(loader: DataLoader[Any]) -> int:
    """Return the batches of a pass over a loader; of one that never ends, as many as have all samples once."""
    samples: int = len(loader.dataset)  # type: ignore[arg-type]
    once = math.ceil(samples / (loader.batch_size or 1))
    try:
        length = len(loader)
    except Exception:  # its sampler has none, or cannot tell it
        return once
    return length if length <= LONG * once else once


def _held(leaf: torch.Tensor) -> Callable[[], torch.Tensor | None]:
    """Return what gives a tensor of a batch later; a large one only for as long as the loop has it."""
    return (lambda: leaf) if leaf.numel() <= SMALL else ref(leaf)
