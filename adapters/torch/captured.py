"""Get the losses of single samples from the loss functions of PyTorch that a training step calls anyway."""

from collections.abc import Callable
from functools import cache, wraps
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

from prunedata.adapters.torch.losses import SMALL
from prunedata.errors import PrunedataError

__all__ = ["Captured", "watch_functions"]

FUNCTIONS = (
    "cross_entropy",
    "nll_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "kl_div",
    "poisson_nll_loss",
    "gaussian_nll_loss",
)
"""The loss functions of ``torch.nn.functional``, which the modules of ``torch.nn`` call too."""
REPLACED = ("weight", "reduction", "reduce", "size_average")
"""Their arguments that the losses of single samples are computed without."""
IGNORE_INDEX = -100
"""PyTorch's default for targets without a label."""
KEEPS_ORDER = ("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Clone", "ToCopy", "LogSoftmax", "Sigmoid")
"""Operations, as autograd names them, whose results have as many numbers in the same order."""


class Captured:
    """The calls of loss functions in one training step: those within its context, see :func:`watch_functions`.

    ``batch`` is what the step was called with, a tree that has the batch's tensors.
    """

    _open: "Captured | None" = None
    """The object that captures the losses of the present training step."""

    def __init__(self, batch: Any = ()) -> None:
        self._batch = batch
        self._turned = False
        """Whether a target has the batch's places first, see :func:`_is_turned`."""
        self._calls: list[tuple[Any, _Losses | None, tuple[Any, ...], set[int]]] = []
        """The result of each call, its function and inputs, and what :func:`_first_sizes` has of them.

        Or in the place of function and inputs None, and its losses with their mask.
        """
        self._outer: Captured | None = None

    def __enter__(self) -> "Captured":
        self._outer, Captured._open = Captured._open, self
        return self

    def __exit__(self, *_: object) -> None:
        Captured._open = self._outer

    def losses(self, returned: Any, samples: int) -> torch.Tensor | None:
        """Return one loss for each sample, shape (n,), without a graph; None if no function had one for each.

        Raises :class:`PrunedataError` if they had several for each, in an unknown order.

        Parameters
        ----------
        returned : Tensor or other
            The loss that the step returned. If a function returned it, its losses are taken; else the sum over all
            functions whose losses have a gradient.
        samples : int
            How many are in the batch.
        """
        with torch.no_grad():
            calls = [(given if of is None else of.each(*given), sizes) for _, of, given, sizes in self._ours(returned)]
            known = [_by_sample(*each, samples=samples) for each, sizes in calls if _is_known(each[0], samples, sizes)]
        many = [losses.numel() for (losses, _), _ in calls if losses.ndim and not len(losses) % samples]
        if many and (self._turned or not known):
            raise PrunedataError(
                f"its step has {many[0]} losses for {samples} samples, and which belong to which sample is unknown: "
                "let outputs and labels have the samples first; if a sample has several views, call the loss function "
                "once for each view"
            )
        return torch.stack(known).sum(0) if known else None

    def later(self, returned: Any, samples: int) -> "tuple[_Losses, tuple[Any, ...]] | None":
        """Return a function for these losses of several batches at once, and its inputs; None if impossible."""
        ours = self._ours(returned)
        _, losses_of, given, _ = ours[0] if len(ours) == 1 else (None, None, (), None)
        if losses_of is None or self._turned or not losses_of.is_row_by_row:
            return None
        if any(each.shape[0] != samples for each in given):
            return None
        return losses_of, given

    def _ours(self, returned: Any) -> "list[tuple[Any, _Losses | None, tuple[Any, ...], set[int]]]":
        return [call for call in self._calls if call[0] is returned] or self._calls

    def take(self, own: Callable[..., Any], result: torch.Tensor, args: Any, options: dict[str, Any]) -> None:
        """Add a call. Small inputs are copied, for later; with large ones the losses are computed at once."""
        if len(args) != 2:
            options = {**dict(zip(_names(own), args, strict=False)), **options}
            if not {"input", "target"} <= options.keys():
                return  # another signature, of a function of the user's
            args = options.pop("input"), options.pop("target")
        losses_of, sizes = _Losses(own, options), _first_sizes(args)
        self._turned |= _is_turned(args[1], self._batch)
        if all(isinstance(each, torch.Tensor) and each.ndim and each.numel() <= SMALL for each in args):
            self._calls.append((result, losses_of, tuple(map(_copied, args)), sizes))
        else:
            with torch.no_grad():
                self._calls.append((result, None, losses_of.each(*args), sizes))


class _Losses:
    """A loss function with all its arguments but input and target, by their names."""

    def __init__(self, own: Callable[..., Any], options: dict[str, Any]) -> None:
        self.own, self._options = own, options
        # A tensor only equals itself: to compare numbers would wait for a device.
        given = [id(each) if isinstance(each, torch.Tensor) else each for each in options.values()]
        self._key = own, *options, *given

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Losses) and self._key == other._key

    __hash__ = None  # type: ignore[assignment]

    @property
    def is_row_by_row(self) -> bool:
        """Whether no other argument has a part for each sample."""
        others = [value for name, value in self._options.items() if name not in ("weight", "pos_weight")]
        return not any(isinstance(value, torch.Tensor) for value in others)

    def __call__(self, *given: torch.Tensor) -> tuple[Any, None]:
        """Return one loss for each row, and no logits."""
        return _by_sample(*self.each(*given), samples=len(given[0])), None

    def each(self, *given: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return all losses without class weights, and a mask of those that belong to a label."""
        options = {name: value for name, value in self._options.items() if name not in REPLACED}
        losses, target = self.own(*given, **options, reduction="none"), given[1]
        if isinstance(target, torch.Tensor) and not target.is_floating_point() and target.shape == losses.shape:
            return losses, target != options.get("ignore_index", IGNORE_INDEX)
        return losses, None


@cache
def _names(own: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a function's arguments."""
    return tuple(signature(own).parameters)


def _copied(given: torch.Tensor) -> torch.Tensor:
    """Return a copy, with which losses are computed as autocast does: its numbers of 16 bits would round them."""
    narrow = given.dtype in (torch.float16, torch.bfloat16)
    return given.detach().to(torch.float32 if narrow else given.dtype, copy=True)


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


def _is_turned(target: Any, batch: Any) -> bool:
    """Whether a target is a batch's tensor, or a part of its places, with the places before the samples.

    Its shape does not show that if a batch has as many places as samples. Others have a shape that shows it.
    """
    parts = list[torch.Tensor]()
    for each in tree_leaves(batch) if isinstance(target, torch.Tensor) else ():
        if isinstance(each, torch.Tensor) and each.ndim > 1 and each.shape[1] >= len(each) > 1:
            alike = (each.dtype, each.device) == (target.dtype, target.device)
            of_sample = each.numel() // (len(each) * each.shape[1])
            if alike and target.numel() == len(each) ** 2 * of_sample:
                parts += each[:, : len(each)], each[:, -len(each) :]
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


def watch_functions() -> Callable[[], None]:
    """Let the loss functions of PyTorch be captured until the returned function is called.

    They return what they always do.
    """
    functions = vars(F)
    before = {name: functions[name] for name in FUNCTIONS}
    functions.update({name: _KNOWN.get(own) or _watched(own) for name, own in before.items()})
    return lambda: functions.update(before)


_KNOWN: dict[Any, Callable[..., Any]] = {}
"""One wrapper for each function, so that a compiled step meets the same one again."""


def _watched(own: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(own)
    def function(*args: Any, **options: Any) -> Any:
        result = own(*args, **options)
        if not torch.compiler.is_compiling():
            captured = Captured._open
            if captured is not None and isinstance(result, torch.Tensor) and result.requires_grad:
                captured.take(own, result, args, options)
        return result

    _KNOWN[function] = function  # a training within another one captures nothing twice
    return _KNOWN.setdefault(own, function)
