"""Watch a Trainer that the user's script builds and calls, for ``prunedata watch``, without changing its weights."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from math import ceil
from typing import Any

import torch

from prunedata.adapters.huggingface.agreement import HeadLosses
from prunedata.adapters.huggingface.checks import check_args_by_weight, check_release
from prunedata.adapters.huggingface.ids import OwnLoader, data_of, packed_starts, samples_in, take_ids, unprepared
from prunedata.adapters.huggingface.joining import refuse_pairs, wrap
from prunedata.adapters.huggingface.losses import base_of, classes_in, logits_of, part_of
from prunedata.adapters.huggingface.weighing import WeighingTrainer, hand_over
from prunedata.adapters.torch.losses import SMALL, kept
from prunedata.adapters.torch.ranks import gather_numbers
from prunedata.adapters.watched.captured import Captured
from prunedata.adapters.watched.epochs import WatchedEpochs, check_ids
from prunedata.adapters.watched.functions import watch_functions
from prunedata.adapters.watched.shown import Shown
from prunedata.errors import LossError, PrunedataError
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["watch"]

HOOK = "prunedata"
"""Under this name a model has our forward hook, during a step."""


def watch(session: Any, trainer: Any, call: Any) -> Callable[[bool], None]:
    """Watch a call of ``trainer.train()``, as :class:`prunedata.cli.watching.session.Watch` describes.

    A trial of ``hyperparameter_search`` is watched from where its arguments are known.
    """
    if call.bound()["trial"] is None:
        return _watch(session, trainer)
    own_setup, ends = trainer._hp_search_setup, list[Callable[[bool], None]]()

    def setup(trial: Any) -> None:
        del trainer._hp_search_setup
        own_setup(trial)
        try:
            ends.append(_watch(session, trainer))
        except Exception as error:
            session.say(f"not watched: {error}")

    def end(complete: bool) -> None:
        vars(trainer).pop("_hp_search_setup", None)
        for each in ends:
            each(complete)

    trainer._hp_search_setup = setup
    return end


def _watch(session: Any, trainer: Any) -> Callable[[bool], None]:
    if isinstance(trainer, WeighingTrainer):
        raise PrunedataError("the script prunes by itself")
    epochs = WatchedEpochs(session, leaves_out=True, ranks=True)
    kind, watched = type(trainer), None
    failed: Exception | None = None
    try:
        pruner = _begin(epochs, trainer)
        if pruner.leave_out == "nothing":
            watched = _Training(epochs, trainer, pruner)
        else:
            wrap(trainer, pruner)
    except Exception as error:
        failed = error
    if trainer.args.world_size > 1:  # either all processes watch or none
        others = [rank for rank, (none,) in enumerate(gather_numbers([failed is not None]).tolist()) if none]
        failed = failed or (PrunedataError(f"process {others[0]} cannot be watched") if others else None)

    def restore() -> None:
        trainer.__class__ = kind
        vars(trainer.callback_handler).pop("on_evaluate", None)

    if failed is not None:
        restore()
        raise failed
    epochs.undone(restore)
    if watched is not None:
        watched.begin()
    return epochs.close


def _begin(epochs: WatchedEpochs, trainer: Any) -> Pruner:
    check_release()
    refuse_pairs(trainer, None)
    check_args_by_weight(trainer.args)
    if trainer.train_dataset is None:
        raise PrunedataError(
            f"{type(trainer).__name__} has no train_dataset: pass the data set that its get_train_dataloader reads"
        )
    samples = samples_in(trainer)
    if not samples:
        raise PrunedataError(
            f"{type(trainer).__name__} trains on a stream, whose samples have no places: in the "
            "script, pruner.wrap(trainer, id=...) takes their ids"
        )
    dataset = data_of(trainer)
    starts = packed_starts(dataset)
    tokenizer = getattr(trainer, "processing_class", None) or getattr(trainer.data_collator, "tokenizer", None)
    return epochs.begin(
        samples,
        _passes(trainer.args, len(dataset)),
        rank=trainer.args.process_index,
        dataset=Shown(dataset, tokenizer, starts, _named_classes(trainer)),
        selected=dataset if starts is None else None,
        classes=classes_in(trainer),
    )


def _named_classes(trainer: Any) -> list[str]:
    """Return the names of a model's classes, if they have been named."""
    names = getattr(getattr(base_of(trainer.model), "config", None), "id2label", None) or {}
    named = [str(names[number]) for number in range(len(names))] if set(names) == set(range(len(names))) else []
    return [] if all(name == f"LABEL_{number}" for number, name in enumerate(named)) else named


def _passes(args: Any, rows: int) -> int:
    """How often a Trainer of these arguments comes through so many rows, the last time maybe not to the end."""
    if args.max_steps <= 0:
        return ceil(float(args.num_train_epochs))
    size = int(args.train_batch_size * args.world_size)
    batches = max(1, rows // size if args.dataloader_drop_last else ceil(rows / size))
    return ceil(int(args.max_steps) / ceil(batches / int(args.gradient_accumulation_steps)))


class _Training:
    """One ``train()`` that is watched, and goes on unwatched where that fails: the user has not asked for an error."""

    def __init__(self, epochs: WatchedEpochs, trainer: Any, pruner: Pruner) -> None:
        self._epochs, self._trainer, self._pruner = epochs, trainer, pruner
        self._own, self._head = OwnLoader(trainer, pruner), HeadLosses(trainer)
        self._trained = 0
        """How many batches of the epoch were trained on."""
        self._settled = False
        """Whether an optimizer step was trained, which showed where the losses come from."""
        self._unknown: Exception | None = None
        """Why the model's losses are none that are known. Then those of the loss functions of PyTorch are taken."""
        self._looked_at: tuple[dict[str, Any], int] = {}, 0
        """What the step was given, and how many samples."""
        self._parts: tuple[Any, ...] = ()
        """What the losses of the step are made of; empty if its forward pass did not show it."""

    def begin(self) -> None:
        """Let the trainer call us: where it makes its loader, and for each epoch and each batch."""
        trainer, epochs = self._trainer, self._epochs
        own_loader, own_epoch, own_step = trainer.get_train_dataloader, trainer._run_epoch, trainer.training_step

        def get_train_dataloader() -> Any:
            loader, deal = unprepared(trainer.accelerator, own_loader)
            given = [loader]
            epochs.guarded(lambda: given.append(self._own.with_ids(loader, tells=True)))
            prepared = deal(given[-1])
            epochs.guarded(lambda: self._own.dealt(loader, prepared))
            return prepared

        def run_epoch(**options: Any) -> Any:
            self._trained = self._own.trained_before(options)
            epochs.agree("another process cannot be watched")
            epochs.guarded(epochs.open)
            result = own_epoch(**options)
            epochs.end()
            return result

        def training_step(model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
            ids = take_ids(inputs)
            if ids is None or epochs.stopped:
                return own_step(model, inputs, *args, **options)
            epochs.guarded(lambda: check_ids(ids))
            if epochs.stopped:
                return own_step(model, inputs, *args, **options)
            return self._step(ids, own_step, model, inputs, *args, **options)

        epochs.patch(trainer, "get_train_dataloader", get_train_dataloader)
        epochs.patch(trainer, "_run_epoch", run_epoch)
        epochs.patch(trainer, "get_batch_samples", partial(self._own.fetch, trainer.get_batch_samples))
        epochs.patch(trainer, "training_step", training_step)
        epochs.patch(trainer.callback_handler, "on_evaluate", hand_over(trainer.callback_handler, self._pruner))
        epochs.undone(watch_functions())

    def _step(self, ids: SomeIds, own_step: Any, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        self._parts, self._looked_at = (), (dict(inputs), len(ids))  # the trainer may take the labels out
        # As register_forward_hook(look, with_kwargs=True) and remove(), in a tenth of their time.
        hooks, with_kwargs = model._forward_hooks, model._forward_hooks_with_kwargs
        hooks[HOOK], with_kwargs[HOOK] = self._look, True
        knows = self._settled and self._unknown is None
        try:
            with nullcontext() if knows else Captured(len(ids), self._looked_at[0]) as captured:
                result = own_step(model, inputs, *args, **options)
        finally:
            hooks.pop(HOOK, None)
            with_kwargs.pop(HOOK, None)
            self._looked_at = {}, 0  # or its memory is held until the next step
        self._trained += 1
        last = self._trained == self._own.batches
        ends = last or self._trainer.accelerator.sync_gradients
        self._epochs.guarded(lambda: self._record(ids, captured, ends=ends))
        self._settled |= ends  # all batches of a step go one way, so that they are one
        if last:
            self._epochs.guarded(self._epochs.pause)
        return result

    def _look(self, module: Any, positional: Any, called_with: dict[str, Any], outputs: Any) -> None:
        """Take what the losses are made of from a forward pass of the step."""
        if torch.is_grad_enabled() and self._unknown is None and not self._epochs.stopped:
            given, samples = self._looked_at
            try:
                self._parts = self._parts_of(outputs, given | called_with, samples)
            except Exception as error:
                if self._settled:
                    self._epochs.stop(error)
                self._unknown = error

    def _parts_of(self, outputs: Any, inputs: Any, samples: int) -> tuple[Any, ...]:
        """Logits and labels of a batch, if they are small and those of many can be one; else its losses."""
        logits, labels = part_of(outputs, "logits"), inputs.get("labels")
        if (
            self._settled and isinstance(logits, torch.Tensor) and isinstance(labels, torch.Tensor)
            and logits.ndim == 2 and labels.ndim and logits.shape[0] == labels.shape[0] == samples
            and logits.numel() <= SMALL
        ):  # fmt: skip
            return kept(logits), kept(labels)  # compiled steps use their memory again
        with torch.no_grad(), self._pruner.overhead:
            if not self._settled:
                self._head.compare(outputs, inputs, some_out=False)
            losses, _ = self._head.of(outputs, inputs, samples)
        if len(losses) != samples:
            raise PrunedataError(
                f"Expected a loss for each of {samples} samples of a batch. Got {len(losses)}: let data_collator and "
                "compute_loss keep each sample once, and leave samples out of train_dataset before"
            )
        return (losses,)

    def _record(self, ids: SomeIds, captured: Captured | None, *, ends: bool) -> None:
        """Record the losses of a batch; ``ends`` says whether the optimizer step ends with it."""
        parts = self._parts
        if self._unknown is not None or not parts:
            self._unknown = self._unknown or PrunedataError("compute_loss called no model, with gradients")
            parts = (None,) if captured is None else self._epochs.losses_in(captured, None)
            if parts[0] is None:
                raise _losses_are_unknown(self._unknown)
            parts = tuple(part for part in parts if part is not None)
        losses_of = self._losses_of_rows if len(parts) == 2 else _as_they_are
        if self._own.repeats(self._trained):
            own = self._own.own(ids)
            ids, parts = ids[own], tuple(part[own] for part in parts)
        if len(ids):
            self._epochs.record_later(ids, parts, losses_of, ends=ends)

    def _losses_of_rows(
        self, logits: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        outputs, inputs = {"logits": logits}, {"labels": labels}
        known = logits_of(outputs, inputs, self._trainer.model)
        return self._head.of(outputs, inputs)[0], known, None if known is None else labels


def _losses_are_unknown(why: Exception) -> Exception:
    """Return what to tell of a step whose losses are unknown: watching calls no method of the user's for them."""
    if not isinstance(why, LossError):
        return why
    return PrunedataError(
        "its model returns no logits for its labels, and its step calls no loss function of PyTorch's for them: in the "
        "script, pruner.wrap(trainer, sample_losses=...) takes its losses"
    )


def _as_they_are(
    losses: torch.Tensor, logits: torch.Tensor | None = None, labels: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    return losses, logits, labels
