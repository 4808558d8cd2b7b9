"""``wrap``: a trainer that is already built, of whatever class, joins a run."""

import threading
from collections.abc import Callable
from typing import Any, cast

import torch
import transformers

from prunedata.adapters.huggingface.by_weight import ByWeight
from prunedata.adapters.huggingface.checks import check_release
from prunedata.adapters.huggingface.ids import packed_starts
from prunedata.adapters.huggingface.trainer import PruneTrainerMixin
from prunedata.adapters.huggingface.weighing import StepMade, WeighingTrainer
from prunedata.errors import PrunedataError
from prunedata.run.frameworks import names_in
from prunedata.run.pruner import Pruner
from prunedata.types import AnyBase


def keys_in(given: Any, *_: Any, **__: Any) -> list[str] | None:
    """Return the names that a trainer's dataset has for its samples; None if it has none, or they are packed."""
    dataset: Any = getattr(given, "train_dataset", None)
    return None if not hasattr(dataset, "__len__") or packed_starts(dataset) is not None else names_in(dataset)


def wrap(
    trainer: Any,
    pruner: Pruner | Callable[[Any], Pruner],
    *,
    id: str | None = None,
    sample_losses: Callable[[Any, Any], torch.Tensor] | None = None,
) -> Any:
    """Let a Trainer that is already built train on pruned data. Call it before ``trainer.train()``.

    Parameters
    ----------
    trainer : transformers.Trainer
        Or any subclass, such as TRL's ``SFTTrainer`` or your own. Its class becomes a subclass of its present class.
    pruner : Pruner or callable
        The run; or a function that makes the run of each ``trainer.train()``, for ``hyperparameter_search``: it is
        called with the trial, as ``model_init`` is, or with None. Ids are positions in ``trainer.train_dataset``;
        where TRL has packed samples into rows, they number the samples of the first row, then those of the second, and
        so on. With ``leave_out="weight"`` or ``"nothing"`` loader, order, steps and epochs are the trainer's own:
        ``max_steps``, streams, packing, ``group_by_length`` and ``dispatch_batches`` work. Otherwise epochs are
        shortened, as by ``PruneTrainerMixin``.
    id : str, optional
        For a stream: the key at which each sample has its id, an integer; in a run with ``keys=`` the sample's key. It
        is taken out of the sample.
    sample_losses : callable, optional
        ``sample_losses(outputs, inputs)`` returns one loss for each sample of a batch, shape (n,), for a trainer with
        its own loss: see :meth:`PruneTrainerMixin.sample_losses`.

    Returns
    -------
    transformers.Trainer
        The trainer itself.

    Raises
    ------
    PrunedataError
        If it is no Trainer, or one whose samples have no separate losses, or if an argument of it cannot be used with
        pruning.
    """
    if not isinstance(trainer, transformers.Trainer):
        raise PrunedataError(f"Expected a Trainer of transformers, or of a subclass. Got {type(trainer).__name__}.")
    if not (isinstance(pruner, Pruner) or callable(pruner)):
        raise PrunedataError(
            f"Expected a Pruner, or for a search a function that makes one for each trial. Got {type(pruner).__name__}."
        )
    if isinstance(trainer, WeighingTrainer):
        raise PrunedataError("Expected a Trainer that is not wrapped yet. Got a wrapped one: build a new Trainer.")
    check_release()
    refuse_pairs(trainer, sample_losses)
    if not isinstance(pruner, Pruner):
        before = type(trainer)
        options = {name: given for name, given in (("id", id), ("sample_losses", sample_losses)) if given is not None}
        own = {"_make_pruner": staticmethod(pruner), "_options": options}
        trainer.__class__ = type(before.__name__, (_Searching, before), own)
        return trainer
    shortens = pruner.leave_out == "delivery"
    if shortens and id is not None:
        raise PrunedataError(
            'Expected id with leave_out="weight", for a stream. Got it with a Pruner that shortens epochs: '
            "leave it out."
        )
    mixin: Any = PruneTrainerMixin if shortens else ByWeight
    before, joined = type(trainer), cast(Any, trainer)
    losses: dict[str, Any] = {}
    if sample_losses is not None:
        losses["sample_losses"] = lambda self, *given: sample_losses(*given)
    elif hasattr(before, "sample_losses"):  # the mixin comes first, and would hide the user's
        losses["sample_losses"] = before.sample_losses
    trainer.__class__ = type(before.__name__, (mixin, before), losses)
    try:
        joined._adopt(pruner, *([] if shortens else [id]))
    except BaseException:
        trainer.__class__ = before
        raise
    return trainer


class _Searching(AnyBase):  # type: ignore[misc]
    """A Trainer that joins a run of its own whenever it trains: of that trial of a search."""

    _make_pruner: Callable[[Any], Pruner]
    _options: dict[str, Any]
    _thread: int | None = None  # the thread in which it trained first

    def train(self, *args: Any, **options: Any) -> Any:
        """As the Trainer's, in one thread."""
        here = threading.get_ident()
        self._thread = here if self._thread is None else self._thread
        if self._thread != here:
            raise PrunedataError(
                "Expected all trials of a Trainer in one thread, as they train its one model, one after another. Got a "
                "second thread, as with n_jobs=2. For two trials at once start the script twice, with "
                "hyperparameter_search(storage='sqlite:///search.db', study_name='search', load_if_exists=True), or "
                "search with backend='ray'."
            )
        return super().train(*args, **options)

    def _hp_search_setup(self, trial: Any) -> None:
        super()._hp_search_setup(trial)  # the model and the arguments are then those of the trial
        kind, handler = type(self), cast(Any, self.callback_handler)
        handler.callbacks = [one for one in handler.callbacks if not isinstance(one, StepMade)]
        vars(handler).pop("on_evaluate", None)
        self.__class__ = kind.__mro__[kind.__mro__.index(_Searching) - 1]  # without what pruned the trial before
        made = self._make_pruner(trial)
        if not isinstance(made, Pruner):
            raise PrunedataError(f"Expected the function to return the trial's Pruner. Got {type(made).__name__}.")
        made.wrap(self, **self._options)


def refuse_pairs(trainer: Any, sample_losses: Any) -> None:
    """Raise for trainers of TRL's other than SFTTrainer, those that are made from it too: they generate answers."""
    of_trl = [each.__name__ for each in type(trainer).__mro__ if each.__module__.startswith("trl.")]
    names = [name for name in of_trl if name.endswith("Trainer") and not name.startswith("_")]
    if names and names[0] != "SFTTrainer" and sample_losses is None:
        raise PrunedataError(
            f"Expected a trainer with one loss per sample. Got {names[0]}, whose loss compares or generates answers: "
            "train with SFTTrainer."
        )
