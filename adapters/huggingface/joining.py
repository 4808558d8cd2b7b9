"""``wrap``: a trainer that is already built, of whatever class, joins a run."""

from collections.abc import Callable
from typing import Any, cast

import torch
import transformers

from prunedata.adapters.huggingface.by_weight import ByWeight
from prunedata.adapters.huggingface.ids import packed_starts
from prunedata.adapters.huggingface.release import check_release
from prunedata.adapters.huggingface.trainer import PruneTrainerMixin
from prunedata.adapters.huggingface.watched import WatchedTrainer
from prunedata.adapters.torch.prints import names_in
from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner

__all__ = ["keys_in", "refuse_pairs", "samples_in", "wrap"]


def samples_in(given: Any, *_: Any, **__: Any) -> int | None:
    """Return how many samples a trainer trains on: of packed rows, the samples in them; None for a stream."""
    dataset: Any = getattr(given, "train_dataset", None)
    if not hasattr(dataset, "__len__"):
        return None
    starts = packed_starts(dataset)
    return len(dataset) if starts is None else int(starts[-1])


def keys_in(given: Any, *_: Any, **__: Any) -> list[str] | None:
    """Return the names that a trainer's dataset has for its samples; None if it has none, or they are packed."""
    dataset: Any = getattr(given, "train_dataset", None)
    return None if not hasattr(dataset, "__len__") or packed_starts(dataset) is not None else names_in(dataset)


def wrap(
    trainer: Any,
    pruner: Pruner,
    *,
    id: str | None = None,
    sample_losses: Callable[[Any, Any], torch.Tensor] | None = None,
) -> Any:
    """Let a Trainer that is already built train on pruned data. Call it before ``trainer.train()``.

    Parameters
    ----------
    trainer : transformers.Trainer
        Or any subclass, as TRL's ``SFTTrainer`` or your own. Its class becomes a subclass of what it was.
    pruner : Pruner
        The run. Ids are positions in ``trainer.train_dataset``; where TRL has packed samples into rows, they number
        the samples of the first row, then those of the second, and so on. With ``leave_out="weight"`` or
        ``"nothing"`` loader, order, steps and epochs are the trainer's own: ``max_steps``, streams, packing,
        ``group_by_length`` and ``dispatch_batches`` work. Otherwise epochs are shortened, as by
        ``PruneTrainerMixin``.
    id : str, optional
        For a stream: the key at which each sample has its id, an integer. It is taken out of the sample.
    sample_losses : callable, optional
        ``sample_losses(outputs, inputs)`` returns one loss for each sample of a batch, shape (n,), for a trainer with a
        loss of its own: see :meth:`PruneTrainerMixin.sample_losses`.

    Returns
    -------
    transformers.Trainer
        The trainer itself.

    Raises
    ------
    PrunedataError
        If it is no Trainer, or one whose samples have no loss of their own, or its arguments don't go with pruning.
    """
    if not isinstance(trainer, transformers.Trainer):
        raise PrunedataError(f"Expected a Trainer of transformers, or of a subclass. Got {type(trainer).__name__}.")
    if not isinstance(pruner, Pruner):
        raise PrunedataError(f"Expected a Pruner as pruner. Got {type(pruner).__name__}.")
    if isinstance(trainer, WatchedTrainer):
        raise PrunedataError("Expected a Trainer that is not wrapped yet. Got a wrapped one: build a new Trainer.")
    check_release()
    refuse_pairs(trainer, sample_losses)
    mixin: Any = PruneTrainerMixin if pruner.leave_out == "delivery" else ByWeight
    if mixin is PruneTrainerMixin and id is not None:
        raise PrunedataError(
            'Expected id with leave_out="weight", for a stream. Got it with a Pruner that shortens epochs: '
            "leave it out."
        )
    before, joined = type(trainer), cast(Any, trainer)
    own = (
        {} if sample_losses is None else {"sample_losses": lambda self, outputs, inputs: sample_losses(outputs, inputs)}
    )
    trainer.__class__ = type(f"Pruned{before.__name__}", (mixin, before), own)
    try:
        joined._adopt(pruner, *([id] if mixin is ByWeight else []))
    except BaseException:
        trainer.__class__ = before
        raise
    return trainer


def refuse_pairs(trainer: Any, sample_losses: Any) -> None:
    """Raise for trainers of TRL's other than SFTTrainer."""
    of_trl = [each.__name__ for each in type(trainer).__mro__ if each.__module__.startswith("trl.")]
    names = [name for name in of_trl if name.endswith("Trainer") and not name.startswith("_")]
    if names and "SFTTrainer" not in names and sample_losses is None:
        raise PrunedataError(
            f"Expected a trainer with one loss per sample. Got {names[0]}, whose loss compares the answers of a pair: "
            "train with SFTTrainer."
        )
