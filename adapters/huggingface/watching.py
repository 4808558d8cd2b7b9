"""Watch a Trainer that the user's script builds and calls, for ``prunedata watch``, without changing its weights."""

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from prunedata.adapters.huggingface.by_weight import ByWeight
from prunedata.adapters.huggingface.callback import HandOver
from prunedata.adapters.huggingface.heads import IGNORED, base_of, classes_in, part_of
from prunedata.adapters.huggingface.ids import IDS, packed_starts
from prunedata.adapters.huggingface.joining import refuse_pairs, samples_in, wrap
from prunedata.adapters.huggingface.left_out import Part, is_flat, losses_of_sequences
from prunedata.adapters.huggingface.losses import logits_of
from prunedata.adapters.huggingface.release import check_release
from prunedata.adapters.huggingface.watched import WatchedTrainer
from prunedata.adapters.torch.captured import Captured, watch_functions
from prunedata.adapters.torch.losses import SMALL, Later, finite
from prunedata.adapters.torch.ranks import gather_numbers
from prunedata.adapters.torch.seeds import drawing_alike
from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["watch"]

AS_IT_IS = (
    "_inner_training_loop", "_get_num_items_in_batch", "compute_loss", "_maybe_log_save_evaluate", "_save_rng_state",
)  # fmt: skip
"""Methods of the user's Trainer that stay its own, as all samples count and nothing is saved with its checkpoints."""


def watch(session: Any, trainer: Any, call: Any) -> Callable[[bool], None]:
    """Watch a call of ``trainer.train()``, as :class:`prunedata.cli.watching.session.Watch` describes."""
    if isinstance(trainer, WatchedTrainer):
        raise PrunedataError("the script prunes by itself")
    args, kind, callbacks = trainer.args, type(trainer), list(trainer.callback_handler.callbacks)
    failed: Exception | None = None
    try:
        run = _joined(session, trainer)
    except Exception as error:
        failed = error
    if args.world_size > 1:  # either all processes watch or none
        others = [rank for rank, (none,) in enumerate(gather_numbers([failed is not None]).tolist()) if none]
        failed = failed or (PrunedataError(f"process {others[0]} cannot be watched") if others else None)
    if failed is not None:
        trainer.__class__, trainer.callback_handler.callbacks = kind, callbacks
        raise failed
    undo = watch_functions()

    def end(complete: bool) -> None:
        try:
            if isinstance(trainer, _WatchedFromOutside) and not complete and args.world_size == 1:
                trainer.close()
            run.keep_previews(drawing_alike())
        finally:
            undo()
            trainer.__class__ = kind
            trainer.callback_handler.callbacks = [
                each for each in trainer.callback_handler.callbacks if not isinstance(each, HandOver)
            ]

    return end


def _joined(session: Any, trainer: Any) -> Any:
    """Begin a run, and let the trainer join it."""
    check_release()
    refuse_pairs(trainer, None)
    samples = samples_in(trainer)
    if not samples:
        raise PrunedataError(
            f"{type(trainer).__name__} trains on a stream, whose samples have no places: in the "
            "script, pruner.wrap(trainer, id=...) takes their ids"
        )
    dataset, starts = trainer.train_dataset, packed_starts(trainer.train_dataset)
    run = session.begin(
        samples,
        _passes(trainer.args, len(dataset)),
        rank=trainer.args.process_index,
        dataset=_Shown(dataset, starts, trainer),
        selected=dataset if starts is None else None,
        classes=classes_in(trainer),
    )
    if run.pruner.leave_out != "nothing":
        wrap(trainer, run.pruner)
        return run
    before = type(trainer)
    named = {"__module__": before.__module__, "__qualname__": before.__qualname__, "__doc__": before.__doc__}
    own = {name: getattr(before, name) for name in AS_IT_IS}
    trainer.__class__ = type(before.__name__, (_WatchedFromOutside, before), named | own)
    trainer.adopt(run.pruner, session.say)
    return run


def _passes(args: Any, rows: int) -> int:
    """How often a Trainer of these arguments comes through so many rows, the last time maybe not to the end."""
    if args.max_steps <= 0:
        return ceil(float(args.num_train_epochs))
    size = int(args.train_batch_size * args.world_size)
    batches = max(1, rows // size if args.dataloader_drop_last else ceil(rows / size))
    return ceil(int(args.max_steps) / ceil(batches / int(args.gradient_accumulation_steps)))


class _WatchedFromOutside(ByWeight):
    """A Trainer that is watched, and goes on unwatched where that fails: the user has not asked for an error."""

    _say: Callable[[str], None]
    _stopped: bool
    _unknown: Exception | None = None
    """Why the losses are none that the adapter knows. Then those of the loss functions of PyTorch are taken."""
    _begun = False
    """Whether a step was trained, which showed where the losses come from."""
    _captured: Captured | None = None

    def adopt(self, pruner: Pruner, say: Callable[[str], None]) -> None:
        """Watch a trainer that is already built; ``say`` prints a message to the user."""
        self._say, self._stopped = say, False
        self._seen = np.zeros(pruner.samples, dtype=np.bool_)
        self._later = Later(self._take)
        self._adopt(pruner, None)
        self._run.recorder.passes_nan = True  # as finite() does for losses: float16 overflows in some steps

    def _check_loss(self, pruner: Pruner, mixin: type) -> None:
        """Nothing: of a ``compute_loss`` of the user's own, the model's own outputs are looked at."""

    def _stop(self, error: Exception) -> None:
        """Watch no longer."""
        if not self._stopped:
            self._stopped = True
            self._say(f"watched no longer: {error}")

    @property
    def _plain(self) -> Any:
        """The trainer as its user built it."""
        return super(WatchedTrainer, self)

    # -- the Trainer's own methods, in the order in which it calls them

    def _with_ids(self, loader: Any) -> Any:
        try:
            return super()._with_ids(loader)
        except Exception as error:
            self._stop(error)
            return loader

    def _run_epoch(self, **options: Any) -> Any:
        pruner = self.pruner
        try:
            self._run.join()
            if not self._stopped:
                self._open(pruner.begin_epoch(), options)
                self._seen = np.zeros(pruner.samples, dtype=np.bool_)
        except Exception as error:
            self._stop(error)
        result = self._plain._run_epoch(**options)
        self.close()
        return result

    def close(self) -> None:
        """End the run's epoch with the losses that were recorded."""
        stopped = self._stopped
        if self.args.world_size > 1:
            stopped = bool(gather_numbers([stopped]).any())
        if stopped:
            self._stop(PrunedataError("another process stopped"))
        elif self.pruner.is_open:
            try:
                self._end()
                self.pruner.end_epoch()
            except Exception as error:
                self._stop(error)

    def training_step(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        ids = inputs.pop(IDS, None)
        if ids is None or self._stopped:
            return self._plain.training_step(model, inputs, *args, **options)
        fills_up = self._rest and self._trained + 1 == self._batches
        settled = self._begun and self._unknown is None and not self._held  # the batches of a step go one way
        if settled and isinstance(ids, np.ndarray) and not fills_up:
            return self._settled_step(ids, model, inputs, args, options)
        self._later.flush()
        inputs[IDS] = ids
        inputs[IDS] = self._leave_out(inputs)
        with Captured() as self._captured:  # in the first step, and where the losses are not known otherwise
            result = super().training_step(model, inputs, *args, **options)
        self._begun, self._captured = True, None  # or a later step would take the losses of this one
        return result

    def _settled_step(self, ids: SomeIds, model: Any, inputs: Any, args: Any, options: Any) -> Any:
        """A step of which it is known, from the first one, what its losses are made of."""
        given = dict(inputs)  # the trainer may take the labels out
        came: tuple[torch.Tensor, ...] = ()

        def look(module: Any, positional: Any, called_with: dict[str, Any], outputs: Any) -> None:
            nonlocal came
            if torch.is_grad_enabled() and not self._stopped:
                try:
                    came = self._parts_of(outputs, given | called_with, len(ids))
                except Exception as error:
                    self._stop(error)

        handle = model.register_forward_hook(look, with_kwargs=True)
        try:
            result = self._plain.training_step(model, inputs, *args, **options)
        finally:
            handle.remove()
        self._trained += 1
        last = self._trained == self._batches
        if not self._stopped:
            try:
                if not came:
                    raise PrunedataError("compute_loss called no model")
                if came[0].shape[0] != len(ids):
                    raise PrunedataError(f"Expected a loss for each of {len(ids)} samples. Got {len(came[0])}.")
                losses_of = self._losses_of_rows if len(came) > 1 else _as_they_are
                self._later.add(ids, came, losses_of, ends=last or self.accelerator.sync_gradients)
            except Exception as error:
                self._stop(error)
        if last:
            self._end()
        return result

    def _parts_of(self, outputs: Any, inputs: Any, samples: int) -> tuple[torch.Tensor, ...]:
        """Logits and labels of a batch, if they are small and those of many can be one; else its losses."""
        logits, labels = part_of(outputs, "logits"), inputs.get("labels")
        if (
            isinstance(logits, torch.Tensor) and isinstance(labels, torch.Tensor)
            and logits.ndim == 2 and labels.ndim and logits.shape[0] == labels.shape[0] == samples
            and logits.numel() <= SMALL
        ):  # fmt: skip
            return logits.detach().clone(), labels.clone()  # compiled steps use their memory again
        with torch.no_grad(), self.pruner.charge:
            if is_flat(inputs):
                losses, _ = losses_of_sequences(outputs, inputs, samples, shifted=self._shifted)
            else:
                losses, _ = self._known_losses(outputs, inputs)
        return (losses,)

    def _losses_of_rows(self, logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        outputs, inputs = {"logits": logits}, {"labels": labels}
        return self._known_losses(outputs, inputs)[0], logits_of(outputs, inputs, self.model)

    def _take(self, ids: SomeIds, losses: torch.Tensor, logits: torch.Tensor | None, sizes: list[int]) -> None:
        """Record batches that have waited."""
        with self.pruner.charge:
            self._run.recorder.add(ids, losses, logits, sizes)
            self._seen[ids] = True

    # -- the losses of samples

    def _losses_of(self, outputs: Any, inputs: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        if not self._stopped and self._unknown is None:
            try:
                losses, counts = super()._losses_of(outputs, inputs)
                return finite(losses, [len(losses)]), counts
            except Exception as error:
                self._unknown = error
        return torch.zeros(0), None

    def _losses_in(self, model: Any, part: Part) -> torch.Tensor:
        if not self._stopped and self._unknown is None:
            try:
                return super()._losses_in(model, part)
            except Exception as error:
                self._unknown = error
        captured, self._captured = self._captured, None
        losses = None if captured is None or self._stopped else captured.losses(None, len(part.ids))
        if losses is None:
            self._stop(self._unknown or PrunedataError("nothing is known of its losses"))
            return torch.zeros(0)
        return finite(losses, [len(losses)])

    def _record(self, ids: SomeIds, losses: torch.Tensor, logits: torch.Tensor | None) -> None:
        if not self._stopped:
            try:
                super()._record(ids, losses, logits)
            except Exception as error:
                self._stop(error)

    def _observe(self, ids: SomeIds, losses: torch.Tensor, logits: torch.Tensor | None) -> None:
        super()._observe(ids, losses, logits)
        self._seen[ids] = True  # of the batches that were fetched, the last may not be trained on

    def _end(self) -> None:
        """Stop the clock; the epoch ends when all processes are there, in :meth:`close`."""
        try:
            self._later.flush()
        except Exception as error:
            self._stop(error)
        self._said.given = self._seen
        if self._said.ended is None:
            self._said.end()


class _Shown(Sequence[Any]):
    """A Trainer's samples as people see them: their texts, and the names of their classes."""

    def __init__(self, dataset: Any, starts: npt.NDArray[np.int64] | None, trainer: Any) -> None:
        self._dataset, self._starts = dataset, starts
        tokenizer = getattr(trainer, "processing_class", None)
        tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        self._decode = getattr(tokenizer, "decode", None)
        names = getattr(getattr(base_of(trainer.model), "config", None), "id2label", None) or {}
        named = [str(names[number]) for number in range(len(names))] if set(names) == set(range(len(names))) else []
        if not all(name == f"LABEL_{number}" for number, name in enumerate(named)):
            self.classes = named
        self.features = getattr(dataset, "features", None)

    def __len__(self) -> int:
        return len(self._dataset) if self._starts is None else int(self._starts[-1])

    def __getitem__(self, sample: Any) -> Any:
        at = sample if self._starts is None else int(np.searchsorted(self._starts, sample, "right")) - 1
        plain = getattr(self._dataset, "with_format", None)
        item = (plain(None) if plain is not None and self.features is not None else self._dataset)[at]
        if not hasattr(item, "keys") or "input_ids" not in item:
            return item
        tokens, answers = _flat(item["input_ids"]), self._answers(item)
        if self._starts is not None:
            lengths = _flat(item["seq_lengths"])
            which = sample - int(self._starts[at])
            part = slice(sum(lengths[:which]), sum(lengths[: which + 1]))
            tokens, answers = tokens[part], answers and answers[part]
        others = {name: value for name, value in item.items() if isinstance(value, (str, int, float))}
        if any(isinstance(value, str) for value in others.values()) or self._decode is None:
            return others
        if not answers or all(answers):
            return others | {"text": self._decode(tokens, skip_special_tokens=True)}
        told = {False: "prompt", True: "answer"}
        return others | {
            name: self._decode(
                [token for token, mine in zip(tokens, answers, strict=True) if mine == own], skip_special_tokens=True
            )
            for own, name in told.items()
        }

    @staticmethod
    def _answers(item: Any) -> list[bool]:
        """Return which tokens are trained on, if not all are."""
        if "completion_mask" in item:
            return [bool(one) for one in _flat(item["completion_mask"])]
        tokens, labels = _flat(item["input_ids"]), _flat(item.get("labels"))
        alike = len(labels) == len(tokens) and all(
            label in (IGNORED, token) for token, label in zip(tokens, labels, strict=True)
        )  # else they are of tokens, and no answer
        return [label != IGNORED for label in labels] if alike else []


def _as_they_are(losses: torch.Tensor) -> tuple[torch.Tensor, None]:
    return losses, None


def _flat(values: Any) -> list[Any]:
    values = values.tolist() if hasattr(values, "tolist") else values
    return values if isinstance(values, list) else []
