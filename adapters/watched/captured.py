"""Get the losses of single samples from the loss functions of PyTorch that a training step calls anyway."""

from collections.abc import Callable
from functools import cache
from inspect import signature
from typing import Any, ClassVar, NamedTuple, TypeAlias

import torch
from torch.utils._pytree import tree_leaves

from prunedata.adapters.torch.losses import SMALL, joined, kept
from prunedata.adapters.watched.functions import Taker, hand_to
from prunedata.counting.guess import IGNORED, MOST_CLASSES
from prunedata.errors import PrunedataError

__all__ = ["OF_LABELS", "Captured", "Lacking"]

OF_CLASSES = "cross_entropy", "nll_loss"
"""Of these the input has a number for each class, and the highest one says which class it is."""
OF_TWO = {"binary_cross_entropy": 0.5, "binary_cross_entropy_with_logits": 0.0}
"""Of these the input has a number for each sample, above this one for class 1, or several, which are no classes."""
OF_LABELS = {*OF_CLASSES, *OF_TWO}
"""Those that compare outputs with labels."""
OF_TEXTS, LENGTHS = ("log_probs", "targets"), "target_lengths"
"""The names of the first arguments of ``ctc_loss``, and of one that no other function has."""
REPLACED = ("weight", "reduction", "reduce", "size_average")
"""Their arguments that the losses of single samples are computed without."""
NARROW = torch.float16, torch.bfloat16
KEEPS_ORDER = ("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Clone", "ToCopy", "LogSoftmax", "Sigmoid")
"""Operations, as autograd names them, whose results have as many numbers in the same order."""


Lacking: TypeAlias = set[tuple[int, str]]
"""Calls of loss functions, by their place in a step and the function's name."""


class Captured:
    """The calls of loss functions in one training step: those within its context, see :func:`watch_functions`.

    ``samples`` is how many are in the step's batch; ``batch`` what the step was called with, a tree that has its
    tensors.
    """

    def __init__(self, samples: int, batch: Any = ()) -> None:
        self._samples, self._batch = samples, batch
        self._turned = False
        """Whether a target has the batch's places first, see :func:`_is_turned`."""
        self._calls: list[_Call] = []
        self._outer: Taker | None = None

    def __enter__(self) -> "Captured":
        self._outer = hand_to(self)
        return self

    def __exit__(self, *_: object) -> None:
        hand_to(self._outer)

    def losses(self, returned: Any, lacking: Lacking | None = None) -> torch.Tensor | None:
        """Return one loss for each sample, shape (n,), without a graph; None if no function had one for each.

        Raises :class:`PrunedataError` if they had several for each, in an unknown order.

        Parameters
        ----------
        returned : Tensor or other
            The loss that the step returned. If a function returned it, its losses are taken; else the sum over all
            functions whose losses have a gradient.
        lacking : Lacking, optional
            Calls that had no loss for each sample in an earlier step. They are left out of this one too: it may have
            as many losses as samples by chance, as where boxes are matched. Those that have none here are added.
        """
        samples, known, many = self._samples, list[torch.Tensor](), list[int]()
        lacking = set() if lacking is None else lacking
        of_labels, viewed = False, False
        with torch.no_grad():
            for place, call in enumerate(self._ours(returned)):
                losses, mask = call.losses()
                divides, new = losses.ndim > 0 and not len(losses) % samples, (place, call.name) not in lacking
                if divides:
                    many.append(losses.numel())
                if new and _is_known(losses, samples, call.sizes):
                    known.append(_by_sample(losses, mask, samples=samples))
                    of_labels |= call.name in OF_LABELS
                else:
                    lacking.add((place, call.name))
                    viewed |= new and divides and call.name in OF_LABELS
        # Where several views have a loss of the labels together, one that compares them says nothing of the labels.
        if many and (self._turned or not known or (viewed and not of_labels)):
            raise PrunedataError(
                f"its step has {many[0]} losses for {samples} samples, and which belong to which sample is unknown: "
                "let outputs and labels have the samples first; if a sample has several views, call the loss function "
                "once for each view"
            )
        return torch.stack(known).sum(0) if known else None

    def later(self, returned: Any) -> "tuple[_Losses, tuple[Any, ...]] | None":
        """Return a function for these losses of several batches at once, and its inputs; None if impossible."""
        ours = self._ours(returned)
        if len(ours) != 1 or self._turned:
            return None
        losses_of, given = ours[0].of, ours[0].given
        if ours[0].is_computed or not losses_of.is_row_by_row or any(len(each) != self._samples for each in given):
            return None
        return losses_of, given

    def at_once(
        self, returned: Any, lacking: Lacking | None = None
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """Return :meth:`losses`, and the logits and labels of the samples, if each is of one class."""
        later = self.later(returned)
        if later is None:
            return self.losses(returned, lacking), None, None
        with torch.no_grad():
            return later[0](*(joined([each]) for each in later[1]))

    def _ours(self, returned: Any) -> "list[_Call]":
        """Return the calls that count. Where samples are mixed, one with the labels of those mixed in does not."""
        ours = list[_Call]()
        for call in [call for call in self._calls if call.result is returned] or self._calls:
            like = next((at for at, other in enumerate(ours) if call.is_mixed_with(other)), None)
            if like is None or self._has_columns(call.target, ours[like].target):
                ours.append(call)
            elif self._has(call.target) and not self._has(ours[like].target):
                ours[like] = call
        return ours

    def keeps_order(self, returned: Any) -> bool | None:
        """Whether the labels in the batch are targets in their order, and not in another; None if no target has them.

        A step may sort its samples by their length.
        """
        found: list[bool] = []
        leaves = [each.flatten() for each in tree_leaves(self._batch) if isinstance(each, torch.Tensor)]
        for call in self._ours(returned):
            if isinstance(call.target, torch.Tensor) and call.target.numel() == self._samples:
                target = call.target.detach().flatten()
                own = [each.to(target) for each in leaves if len(each) == len(target)]
                if any(_are_equal(each, target) for each in own):
                    return True
                found += [False] * any(_are_equal(each.sort().values, target.sort().values) for each in own)
        return False if found else None

    def _has(self, target: Any) -> bool:
        """Whether a target is a tensor of the batch."""
        return any(isinstance(each, torch.Tensor) and _are_equal(each, target) for each in tree_leaves(self._batch))

    def _has_columns(self, *targets: torch.Tensor) -> bool:
        """Whether targets are columns of one tensor of the batch: labels of several tasks, alike by chance."""
        leaves = [each for each in tree_leaves(self._batch) if isinstance(each, torch.Tensor) and each.ndim == 2]
        tables = [each.unbind(1) for each in leaves if each.dtype == targets[0].dtype]
        return any(all(any(_are_equal(own, each) for own in table) for each in targets) for table in tables)

    def keep(self, which: list[bool]) -> None:
        """Forget all other calls."""
        self._calls = [call for call, stays in zip(self._calls, which, strict=True) if stays]

    def take(self, own: Callable[..., Any], result: torch.Tensor, args: Any, options: dict[str, Any]) -> bool:
        """Add a call, and return whether it has input and target.

        Small inputs are copied, for later; with large ones the losses are computed at once.
        """
        if len(args) != 2:
            options = {**dict(zip(_names(own), args, strict=False)), **options}
            names = OF_TEXTS if LENGTHS in options else ("input", "target")
            if not options.keys() >= set(names):
                return False  # another signature, of a function of the user's
            args = [options.pop(name) for name in names]
        losses_of = _Losses.of(own, {name: value for name, value in options.items() if name not in REPLACED})
        of_samples = isinstance(args[0], torch.Tensor) and args[0].shape[:1] == (self._samples,)
        sizes = set[int]() if of_samples else _first_sizes(args)
        self._turned |= _is_turned(args[1], self._batch, self._samples)
        is_large = not all(isinstance(each, torch.Tensor) and each.ndim and each.numel() <= SMALL for each in args)
        with torch.no_grad():
            given = losses_of.each(*args) if is_large else tuple(map(_copied, args))
        self._calls.append(_Call(result, losses_of, args[0], args[1], sizes, given, is_large))
        return True


class _Call(NamedTuple):
    """A call of a loss function with these outputs and this target, and what it returned."""

    result: Any
    of: "_Losses"
    """The function with its other arguments."""
    outputs: Any
    target: Any
    sizes: set[int]
    """What :func:`_first_sizes` has of its inputs."""
    given: tuple[Any, ...]
    """Copies of its inputs, or its losses with their mask, if they were computed at once."""
    is_computed: bool

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.of.own.__name__

    def losses(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return what :meth:`_Losses.each` does."""
        losses, mask = self.given if self.is_computed else self.of.each(*(joined([each]) for each in self.given))
        return losses, mask

    def is_mixed_with(self, other: "_Call") -> bool:
        """Whether both compare the same outputs with the same labels, in two orders of the samples, as mixup does."""
        if self.of != other.of or not _are_one(self.outputs, other.outputs):
            return False
        targets: Any = self.target, other.target
        if any(not isinstance(each, torch.Tensor) or not each.ndim for each in targets):
            return False
        return _are_equal(*(each.sort(0).values for each in targets))


class _Losses:
    """A loss function with those of its arguments that the losses of single samples depend on, by their names."""

    _newest: ClassVar[dict[Any, "_Losses"]] = {}
    """Of each function the object of the newest call, if no argument is a tensor, whose memory it would keep."""

    def __init__(self, own: Callable[..., Any], options: dict[str, Any]) -> None:
        self.own, self._options = own, options
        tensors = {name: each for name, each in options.items() if isinstance(each, torch.Tensor)}
        # A tensor only equals itself: to compare numbers would wait for a device.
        self._key = own, options | {name: id(each) for name, each in tensors.items()}
        self.is_row_by_row = tensors.keys() <= {"pos_weight"} and LENGTHS not in options
        """Whether no argument has a part for each sample."""
        if not tensors:
            self._newest[own] = self

    @classmethod
    def of(cls, own: Callable[..., Any], options: dict[str, Any]) -> "_Losses":
        """Return an object for these arguments: the newest again if they are equal, as they are in most steps."""
        newest = cls._newest.get(own)
        return newest if newest is not None and newest._options == options else cls(own, options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Losses) and self._key == other._key

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, *given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Return one loss for each row, and its logits and its label, -100 for none, if each row is of one class."""
        losses, (outputs, labels) = _by_sample(*self.each(*given), samples=len(given[0])), given
        name, rows = self.own.__name__, len(losses)
        if name in OF_CLASSES and outputs.ndim == 2 and labels.ndim == 1 and 1 < outputs.shape[1] <= MOST_CLASSES:
            is_none = labels == self._options.get("ignore_index", IGNORED)
            return losses, outputs, torch.where(is_none, IGNORED, labels.long())
        if name in OF_TWO and outputs.numel() == labels.numel() == rows and bool(((labels == 0) | (labels == 1)).all()):
            score = outputs.reshape(rows) - OF_TWO[name]
            return losses, torch.stack([-score, score], dim=1), labels.reshape(rows).long()
        return losses, None, None

    def each(self, *given: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return all losses without class weights, and a mask of those that belong to a label."""
        losses, target = self.own(*given, **self._options, reduction="none"), given[1]
        if LENGTHS in self._options:  # the mean over a text's tokens, as of other losses
            return losses / torch.as_tensor(self._options[LENGTHS]).to(losses).clamp(min=1), None
        if isinstance(target, torch.Tensor) and not target.is_floating_point() and target.shape == losses.shape:
            return losses, target != self._options.get("ignore_index", IGNORED)
        return losses, None


@cache
def _names(own: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a function's arguments."""
    return tuple(signature(own).parameters)


def _copied(given: torch.Tensor) -> Any:
    """Return a copy, with which losses are computed as autocast does: its numbers of 16 bits would round them."""
    return kept(given.float() if given.dtype in NARROW else given)


def _are_one(one: Any, other: Any) -> bool:
    """Whether outputs are the same, or the same view of all numbers of the same tensor."""
    if one is other or not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return one is other
    base = one._base
    return base is not None and base is other._base and one.shape == other.shape and one.numel() == base.numel()


def _are_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    alike = (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)
    return alike and (one is other or torch.equal(one, other))


def _first_sizes(given: Any) -> set[int]:
    """Return the first sizes that inputs of a loss function had before they were flattened, by their shapes alone.

    If one of them is the number of samples, the losses of each sample follow one another.
    """
    found = set[int]()
    for each in (one for one in given if isinstance(one, torch.Tensor)):
        base, node = each._base, each.grad_fn
        if base is not None and base.numel() == each.numel() and base.is_contiguous() and each.is_contiguous():
            found.update(base.shape[:1])
        while node is not None and type(node).__name__.partition("Backward")[0] in KEEPS_ORDER:
            found.update(getattr(node, "_saved_self_sym_sizes", ())[:1])
            node = node.next_functions[0][0]
    return found


def _is_turned(target: Any, batch: Any, samples: int) -> bool:
    """Whether a target is a batch's tensor, or a part of its places, with the places before the samples.

    Its shape does not show that if a batch has as many places as samples. Others have a shape that shows it.
    """
    if not isinstance(target, torch.Tensor) or samples < 2 or not target.numel() or target.numel() % samples**2:
        return False
    parts = list[torch.Tensor]()
    for each in tree_leaves(batch):
        if isinstance(each, torch.Tensor) and each.ndim > 1 and each.shape[1] >= len(each) == samples:
            alike = (each.dtype, each.device) == (target.dtype, target.device)
            if alike and target.numel() == samples * (each.numel() // each.shape[1]):
                parts += each[:, :samples], each[:, -samples:]
    flat = target.flatten() if parts else None
    if flat is None or any(torch.equal(flat, part.flatten()) for part in parts):
        return False
    return any(torch.equal(flat, part.transpose(0, 1).flatten()) for part in parts)


def _is_known(losses: torch.Tensor, samples: int, sizes: set[int]) -> bool:
    """Whether it is known which losses belong to which sample."""
    rows = len(losses) if losses.ndim else 0
    return rows == samples or (rows > 0 and not rows % samples and (samples == 1 or samples in sizes))


def _by_sample(losses: torch.Tensor, mask: torch.Tensor | None, *, samples: int) -> torch.Tensor:
    """Return the mean over the values of each sample, whose values follow one another."""
    each = losses.float().reshape(samples, -1)
    if mask is None:
        return each.mean(1)
    counts = mask.reshape(samples, -1)
    return (each * counts).sum(1) / counts.sum(1).clamp(min=1)
