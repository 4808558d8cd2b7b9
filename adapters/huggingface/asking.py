"""A user's ``compute_loss`` is asked for the outputs too, so that it is known which forward pass is trained on."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from prunedata.adapters.huggingface.watch import ForwardWatch

__all__ = ["asked", "compute_loss_owner", "may_be_asked"]

STOCK = (("transformers", "Trainer"), ("trl", "SFTTrainer"))
"""Whose ``compute_loss`` trains on one forward pass of the model."""


def compute_loss_owner(kind: type, mixin: type) -> tuple[type, bool]:
    """Return the class whose ``compute_loss`` a trainer of this kind has beside the mixin's, and if it is stock."""
    own = next(each for each in kind.__mro__ if each is not mixin and "compute_loss" in vars(each))
    return own, (own.__module__.partition(".")[0], own.__name__) in STOCK


def may_be_asked(trainer: Any, mixin: type) -> bool:
    """Whether ``compute_loss`` can be called with ``return_outputs=True`` and does the same as without.

    TRL's own makes another forward pass for it.
    """
    kind = type(trainer)
    if compute_loss_owner(kind, mixin)[1] or any(each.__module__.startswith("trl.") for each in kind.__mro__):
        return False
    takes = inspect.signature(trainer.compute_loss).parameters
    return "return_outputs" in takes or any(each.kind is each.VAR_KEYWORD for each in takes.values())


@contextmanager
def asked(
    trainer: Any, watch: ForwardWatch, weigh: Callable[[torch.Tensor, Any], torch.Tensor], *, asks: bool
) -> Iterator[None]:
    """Let ``watch`` receive the results of the trainer's ``compute_loss``; ``asks`` as from :func:`may_be_asked`.

    What is trained on is ``weigh(loss, num_items_in_batch)``, which is called when the losses of samples are known.
    """
    own, patched = trainer.compute_loss, vars(trainer).get("compute_loss")

    def compute_loss(model: Any, inputs: Any, return_outputs: bool = False, **others: Any) -> Any:
        if asks or return_outputs:
            others["return_outputs"] = True
        result = own(model, inputs, **others)
        loss, outputs = result[:2] if isinstance(result, tuple) else (result, None)
        watch.choose(outputs)
        loss = weigh(loss, others.get("num_items_in_batch"))
        return (loss, *result[1:]) if return_outputs else loss

    trainer.compute_loss = compute_loss
    try:
        yield
    finally:
        del trainer.compute_loss
        if patched is not None:
            trainer.compute_loss = patched
