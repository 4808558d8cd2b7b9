"""The batches of a loop over a DataLoader, and which of them the target of a loss function is of."""

import math
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any
from weakref import ref

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader

from prunedata.adapters.torch.captured import Captured
from prunedata.adapters.torch.losses import SMALL
from prunedata.adapters.watched.epochs import LONG
from prunedata.types import SomeIds

__all__ = ["Batch", "LoaderPass"]

LOOKS, EVERY = 8, 64
"""On a device, targets are compared in so many batches at the beginning of a pass, and then in one of so many: to
compare them waits for the device."""
TASKS = 16
"""Of a tensor with more columns, such as tokens or their mask, one may equal any target by chance."""
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
        parts = _tensors_in(batch)
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
        """Whether a target on the host is one of its tensors, or a part of one, as :func:`_is_of` compares them."""
        return any(
            leaf is not None and _is_of(leaf.detach().cpu(), target) for leaf in (held() for held in self._leaves)
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


def _length_of(loader: DataLoader[Any]) -> int:
    """Return the batches of a pass over a loader; of one that never ends, as many as have all samples once."""
    samples: int = len(loader.dataset)  # type: ignore[arg-type]
    once = math.ceil(samples / (loader.batch_size or 1))
    try:
        length = len(loader)
    except Exception:  # its sampler has none, or cannot tell it
        return once
    return length if length <= LONG * once else once


def _tensors_in(batch: Any) -> list[torch.Tensor]:
    """Return the tensors of a batch, in lists and dicts of any depth, or in the attributes of an object."""
    parts = list(batch.values()) if isinstance(batch, Mapping) else batch
    if isinstance(parts, (list, tuple)) and all(isinstance(each, torch.Tensor) for each in parts):
        return list(parts)  # soon, as most batches are so
    leaves = tree_leaves(parts)
    if len(leaves) == 1 and leaves[0] is batch and not isinstance(batch, torch.Tensor):
        leaves = tree_leaves(batch.to_dict() if hasattr(batch, "to_dict") else dict(getattr(batch, "__dict__", {})))
    return [each for each in leaves if isinstance(each, torch.Tensor)]


def _held(leaf: torch.Tensor) -> Callable[[], torch.Tensor | None]:
    """Return what gives a tensor of a batch later; a large one only for as long as the loop has it."""
    return (lambda: leaf) if leaf.numel() <= SMALL else ref(leaf)


def _is_of(leaf: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether a target is a tensor of a batch, as it is or one hot, a column, the end, or all but the first token."""
    if leaf.ndim == 1 and target.ndim == 2 and len(leaf) == len(target) and target.shape[1] > 1:
        return _is_of_labels(target) and _has_labels(target, leaf)
    if _are_equal(leaf, target):
        return True
    if leaf.ndim == target.ndim == 3 and len(leaf) == len(target):  # of a series the end is predicted
        return _are_equal(leaf[:, -target.shape[1] :, -target.shape[2] :], target)
    if leaf.ndim != 2 or leaf.shape[1] < 2:
        return False
    if target.ndim == 1 and len(leaf) == len(target) and leaf.shape[1] <= TASKS:  # each task has a column
        rounds = leaf.is_floating_point() and not target.is_floating_point()  # inputs would look like labels
        return not rounds and bool((leaf.to(target.dtype) == target[:, None]).all(0).any())
    if target.numel() == leaf.numel():
        target = target.reshape(leaf.shape)[:, :-1]
    return _are_equal(leaf[:, 1:], target)  # of tokens the next ones are predicted


def _is_of_labels(target: torch.Tensor) -> bool:
    """Whether probabilities of classes are labels, also smoothed or mixed: all but one or two in a row are the lowest.

    Those of a network, such as a teacher, are other ones, though the likeliest classes may be the labels.
    """
    rows, classes = target.shape
    lowest = int((target == target.min()).sum())
    return lowest >= (max(rows * (classes - 2), 2) if rows > 1 else classes - 1)


def _has_labels(target: torch.Tensor, leaf: torch.Tensor) -> bool:
    """Whether probabilities of classes have a part for the label of each row, which may be mixed with another."""
    labels = leaf.long()
    if not _are_equal(leaf, labels) or labels.min() < 0 or labels.max() >= target.shape[1]:
        return False
    return bool((target.gather(1, labels[:, None]) > target.min()).all())


def _are_equal(leaf: torch.Tensor, target: torch.Tensor) -> bool:
    return leaf.numel() == target.numel() and torch.equal(leaf.flatten().to(target.dtype), target.flatten())
