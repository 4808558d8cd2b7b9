"""Hand the calls of PyTorch's loss functions to what watches a training. They return what they always do."""

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

__all__ = ["Taker", "hand_to", "watch_functions"]

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
    "ctc_loss",
    "ctc_loss",
    "gaussian_nll_loss",
    "soft_margin_loss",
    "hinge_embedding_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
)
"""The loss functions of ``torch.nn.functional``, which the modules of ``torch.nn`` call too."""
OF_TIMM = "LabelSmoothingCrossEntropy", "SoftTargetCrossEntropy"
"""The modules of ``timm.loss`` that are PyTorch's cross entropy, but do not call it."""


class Taker(Protocol):
    """What takes the calls of loss functions, one at a time."""

    def take(self, own: Callable[..., Any], result: torch.Tensor, args: Any, options: dict[str, Any]) -> object:
        """Take a call of a function with these arguments, which returned this result, one to train on."""
        ...


def hand_to(taker: Taker | None) -> Taker | None:
    """Hand the calls to this object from now on, or to none; return the one before."""
    before = _Calls.taker
    _Calls.taker = taker
    return before


class _Calls:
    taker: Taker | None = None
    """What takes them now."""


def watch_functions() -> Callable[[], None]:
    """Hand over the calls of PyTorch's loss functions until the returned function is called.

    They return what they always do, and stay the same objects, as a script may have kept them anywhere, such as in an
    attribute of its model: only the code that they run is another.
    """
    undo = [_watched(name, vars(F)[name]) for name in FUNCTIONS]
    of_timm = vars(sys.modules.get("timm.loss.cross_entropy", F))
    undo += [_watched(name, of_timm[name].forward, _hand_over_timms) for name in OF_TIMM if name in of_timm]

    def restore() -> None:
        for each in undo:
            each()

    return restore


_CALLED: dict[str, Callable[..., Any]] = {}
"""By its name in PyTorch's module what a loss function that is watched calls."""
_OWN: dict[Any, FunctionType] = {}
"""Of each function that was watched another one with the code that it had, the same in each training."""


def _hand_over(taker: Taker, own: Callable[..., Any], result: torch.Tensor, args: Any, options: Any) -> None:
    """Hand over a call of a function."""
    taker.take(own, result, args, options)


def _hand_over_timms(taker: Taker, _: Callable[..., Any], result: torch.Tensor, args: Any, options: Any) -> None:
    """Hand over a call of a module of timm's as one of the function that it does not call."""
    if len(args) == 3 and args[1].ndim == 2 and not options:
        own = _OWN.get(F.cross_entropy, F.cross_entropy)
        taker.take(own, result, args[1:], {"label_smoothing": getattr(args[0], "smoothing", 0.0)})


def _watched(name: str, given: Any, hand_over: Callable[..., None] = _hand_over) -> Callable[[], None]:
    """Hand over a function's calls until the returned one is called. One that is watched already stays as it is."""
    if not isinstance(given, FunctionType) or given.__code__.co_filename == _instead.__code__.co_filename:
        return lambda: None
    code, own = given.__code__, _OWN.get(given)
    if own is None or own.__code__ is not code:
        own = FunctionType(code, given.__globals__, given.__name__, given.__defaults__, given.__closure__)
        own.__kwdefaults__, own.__annotations__ = given.__kwdefaults__, given.__annotations__
        _OWN[given] = own
    before = {name: value for name, value in vars(given).items() if name == "__wrapped__"}

    def function(*args: Any, **options: Any) -> Any:
        result = own(*args, **options)
        taker = _Calls.taker
        if taker is not None and _is_loss(result):
            hand_over(taker, own, result, args, options)
        return result

    _CALLED[name] = function
    constants = tuple(name if each == "name" else each for each in _instead.__code__.co_consts)
    given.__code__ = _instead.__code__.replace(co_consts=constants, co_freevars=code.co_freevars)
    vars(given)["__wrapped__"] = own  # who reads its source or its arguments, as torch.jit.script, reads those

    def restore() -> None:
        given.__code__ = code
        vars(given).pop("__wrapped__", None)
        vars(given).update(before)

    return restore


def _is_loss(result: Any) -> bool:
    """Whether the result of a loss function is one to train on, and no compiler only tries the function."""
    if not isinstance(result, torch.Tensor) or isinstance(result, FakeTensor | FunctionalTensor):
        return False
    return result.requires_grad and not torch.compiler.is_compiling()


def _instead(*args: Any, **options: Any) -> Any:
    """Have the code of a watched function, which finds nothing of this module by itself."""
    from prunedata.adapters.watched.functions import _CALLED  # noqa: PLC0415

    return _CALLED["name"](*args, **options)
