"""Training steps of a Trainer by weight: the mean over the samples that count, weighted as the epoch needs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback

from prunedata.adapters.huggingface import checkpoint
from prunedata.adapters.huggingface.agreement import Divisor, HeadLosses
from prunedata.adapters.huggingface.checks import check_loss
from prunedata.adapters.huggingface.forward import ForwardWatch, may_be_asked
from prunedata.adapters.huggingface.ids import IDS, take_ids
from prunedata.adapters.huggingface.left_out import Part, evaluating, without_labels
from prunedata.adapters.huggingface.losses import ignored_labels, logits_of, part_of
from prunedata.adapters.huggingface.steps import Change, stretch
from prunedata.adapters.torch.run import TorchRun
from prunedata.counting.guess import IGNORED
from prunedata.errors import PrunedataError
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.types import AnyBase, SomeIds


def hand_over(handler: Any, pruner: Pruner) -> Callable[..., Any]:
    """Return ``on_evaluate`` of a callback handler, which first hands ``metric_for_best_model`` to the pruner.

    Evaluations within an epoch are passed over: a run goes by one figure an epoch. A callback in its place would be
    called at all events of a step.
    """
    own = handler.on_evaluate

    def on_evaluate(args: Any, state: Any, control: Any, metrics: Any = None, **others: Any) -> Any:
        name, ends = args.metric_for_best_model, state.epoch and float(state.epoch).is_integer()
        if name is not None and pruner.holdout is None and ends:
            figure = (metrics or {}).get(name if name.startswith("eval_") else f"eval_{name}")
            if figure is not None and not pruner.is_validated:
                # It is the same on all ranks, because the Trainer gathers the evaluation.
                pruner.validated(figure, lower_is_better=args.greater_is_better is False, agreed=True)
        return own(args, state, control, metrics, **others)

    return on_evaluate


class WeighingTrainer(AnyBase):  # type: ignore[misc]
    """Trains on the samples that count, by ``Epoch.loss_weights``, and records the losses of each step.

    Samples that count nothing lose their labels before those of a step are counted; or, where a loss knows no label
    that has none, their rows leave the batch.
    """

    pruner: Pruner

    _batches: int | None = None  # how many batches the epoch has, if that is known
    _trained = 0  # how many of them were trained on
    _part: Part | None = None  # what counts of the batch that is trained on
    _fused = False  # whether the model gives no logits, but what its own labels make of them
    _stand: checkpoint.Stand | None = None
    """Where the run stood in the checkpoint from which it goes on; None if it began."""
    _changes: tuple[Change, ...] = ()  # how the number of its steps has changed
    _began = 0  # the optimizer step at which the open epoch began
    _save_waits = False
    _looked_at = -1

    def _watch_losses(self, pruner: Pruner) -> None:
        """Look at the losses of the samples from now on."""
        self.pruner = pruner
        self._own_losses = type(self).sample_losses is not WeighingTrainer.sample_losses
        check_loss(self, pruner, own_losses=self._own_losses)
        self._head = HeadLosses(self)
        self._watch = ForwardWatch(
            self._losses_of, lambda outputs, inputs: logits_of(outputs, inputs, self.model), waits=self._own_losses
        )
        self._divisor = Divisor(self, self._watch, own_losses=self._own_losses)
        self._asks = self._own_losses and may_be_asked(self)
        self._run = pruner.attach(TorchRun(pruner))
        self._run.joins_batches = True  # those of one optimizer step
        self.callback_handler.on_evaluate = hand_over(self.callback_handler, pruner)
        self.callback_handler.callbacks.insert(0, StepMade(self))
        self._held: list[tuple[SomeIds, torch.Tensor, torch.Tensor | None]] = []

    # -- what a user may override

    def sample_losses(self, outputs: Any, inputs: Any) -> torch.Tensor:
        """Return one loss for each sample of a batch, shape (n,): those that are recorded.

        By default what the loss of a stock head is the mean of, as its cross entropy; of a model of tokens the mean
        over the sample's own tokens, without those that are labeled -100. Override it for a model, or a
        ``compute_loss``, with another loss.

        Parameters
        ----------
        outputs
            What the model returned in the forward pass of the training step. Of several passes, what ``compute_loss``
            returns beside the loss; it is called with ``return_outputs=True`` for that.
        inputs : dict
            What ``data_collator`` made, and what the model was called with.

        Raises
        ------
        LossError
            If the model has no logits for its labels.
        """
        return self._head.of(outputs, inputs)[0]

    # -- the Trainer's own methods, in the order in which it calls them

    def _inner_training_loop(self, *args: Any, **options: Any) -> Any:
        self._stand = checkpoint.load(options.get("resume_from_checkpoint"), self.args, self.pruner)
        self._changes = () if self._stand is None else self._stand.changes
        return super()._inner_training_loop(*args, **options)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """As the Trainer's. If the number of steps has changed before the run was resumed, it changes again."""
        made = self.lr_scheduler is None
        scheduler = super().create_scheduler(self._changes[0].old if self._changes else num_training_steps, optimizer)
        for change in self._changes if made else ():
            stretch(scheduler, change)
        return scheduler

    def _get_num_items_in_batch(self, batch_samples: list[Any], *args: Any, **options: Any) -> Any:
        """As the Trainer's, of what counts: it is called with all batches of a step, before the first is trained on."""
        if not any(IDS in batch for batch in batch_samples):
            return super()._get_num_items_in_batch(batch_samples, *args, **options)
        seen, parts = [], []
        for batch in batch_samples:
            part = self._leave_out(batch)
            batch[IDS] = part
            parts.append(part)
            seen.append(batch)
            labels = batch.get("labels")
            if isinstance(labels, torch.Tensor) and not labels.is_floating_point() and (part.none or part.labels):
                seen[-1] = dict(batch)  # the Trainer counts all labels but these
                without_labels(seen[-1], part.counted[part.in_batch], {"labels": IGNORED, "shift_labels": IGNORED})
        self._weigh_parts(parts)
        items = super()._get_num_items_in_batch(seen, *args, **options)
        if not self.pruner.current.zero_weights or items is None:
            return items
        return items.clamp(min=1) if isinstance(items, torch.Tensor) else max(1, items)

    def _leave_out(self, batch: Any) -> Part:
        """Remove the samples that do not count from a batch, and its ids."""
        ids: Any = take_ids(batch)
        epoch = self.pruner.current
        counted = np.ones(len(ids), dtype=np.bool_) if not epoch.zero_weights else epoch.trained[ids]
        part = Part(ids, epoch.loss_weights(ids), counted)
        labels = None if self._own_losses else batch.get("labels")  # in a loss of one's own they may be no classes
        if isinstance(labels, torch.Tensor) and labels.ndim == 1 and self.pruner.wants_labels:
            part.given = labels  # before those that do not count are removed
        if not counted.all():
            ignored = {} if self._own_losses else ignored_labels(self.model, batch)
            part.leave_out(batch, ignored, keeps=self.pruner.holdout is not None)
        return part

    def _weigh_parts(self, parts: list[Part]) -> None:
        """Compute the weight of each batch's mean in the mean of the step, over its batches and all processes."""
        if not self.pruner.current.zero_weights:
            return
        sizes = torch.tensor([sum(len(part.ids) for part in parts), sum(int(part.counted.sum()) for part in parts)])
        if self.args.world_size > 1:
            sizes = self.accelerator.gather(sizes.to(self.args.device)).view(-1, 2).sum(0)
        samples, counting = sizes.tolist()
        for part in parts:
            part.factor = float(part.counted.mean()) * samples / max(1, counting)

    def training_step(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        """As the Trainer's, without the ids; the losses of the samples are recorded."""
        part = inputs.pop(IDS, None)
        if part is None:
            return super().training_step(model, inputs, *args, **options)
        if not isinstance(part, Part):
            raise PrunedataError(
                "Expected a Trainer whose _get_num_items_in_batch sees all batches of a step before it. Got one that "
                f"doesn't call it: {type(self).__name__} may override get_batch_samples, so leave that to the Trainer."
            )
        self._part = part
        try:
            with self._watch.over(model, inputs, *part.weighed()), self._weighing():
                loss = super().training_step(model, inputs, *args, **options)
            logits = self._watch.logits
            if logits is not None:  # what the model said of the samples, if it said it of each
                logits = part.spread(logits) if len(logits) == int(part.in_batch.sum()) else None
            losses = self._losses_in(model, part)
        finally:
            self._part = None
        if logits is not None and part.given is not None:
            self.pruner.see_labels(part.ids, part.given)
        self._record(part.ids, losses, logits)
        return loss

    @contextmanager
    def _weighing(self) -> Iterator[None]:
        """Let ``compute_loss``, the Trainer's or a user's own, return the weighed loss.

        A user's own is called for its outputs too: they say which forward pass is trained on.
        """
        mine: Any = vars(self)
        own, patched = self.compute_loss, mine.get("compute_loss")

        def compute_loss(model: Any, inputs: Any, return_outputs: bool = False, **others: Any) -> Any:
            if self._asks or return_outputs:
                others["return_outputs"] = True
            result = own(model, inputs, **others)
            loss, *more = result if isinstance(result, tuple) else (result,)
            self._watch.choose(more[0] if more else None)
            loss = self._weighed(loss, others.get("num_items_in_batch"))
            return (loss, *more) if return_outputs else loss

        mine["compute_loss"] = compute_loss
        try:
            yield
        finally:
            del mine["compute_loss"]
            if patched is not None:
                mine["compute_loss"] = patched

    def _weighed(self, loss: torch.Tensor, items: Any) -> torch.Tensor:
        """Return the loss of a batch by the weights of its samples, times its share in the step."""
        part = self._part
        if part is None:
            return loss
        if part.none:
            return torch.nan_to_num(loss) * 0
        alone = part.factor != 1 and not self._divisor.is_of_step(loss.detach(), items)
        loss = self._watch.weigh(loss)
        return loss * part.factor if alone else loss

    def _maybe_log_save_evaluate(self, *args: Any, **options: Any) -> None:
        """As the Trainer's. A checkpoint at an epoch's last step waits for the evaluation at the epoch's end.

        So it has the epoch's figure: a run that goes on from it would never get that.
        """
        step, control = self.state.global_step, self.control
        first, self._looked_at = step != self._looked_at, step  # it is called after each step, and at an epoch's end
        if not first:
            control.should_save |= self._save_waits
            self._save_waits = False
        elif self._trained == self._batches and control.should_save and not control.should_evaluate:
            self._save_waits, control.should_save = True, False
        super()._maybe_log_save_evaluate(*args, **options)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        state = self.state
        began = self._began if self.pruner.is_open else state.global_step
        stand = checkpoint.Stand(self._changes, began, state.max_steps)
        checkpoint.save(output_dir, self.args, self.pruner, stand)

    # -- epochs

    def _begin_epoch(self, number: int) -> Epoch:
        """Begin the run's epoch, which has to be the one that the Trainer begins."""
        epoch = self.pruner.begin_epoch()
        if epoch.number != number:
            raise PrunedataError(
                f"Expected the trainer to go on with epoch {epoch.number}, the pruner's epoch. Got epoch {number}."
            )
        self._held.clear()
        return epoch

    def _end(self) -> None:
        self.pruner.end_epoch()

    # -- the losses of samples

    def _losses_of(self, outputs: Any, inputs: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the result of a user's ``sample_losses``, or the losses of the model's own head."""
        part = self._part
        with self.pruner.overhead:
            if self._own_losses or part is None:
                return self.sample_losses(outputs, inputs), None
            self._head.compare(outputs, inputs, some_out=bool(part.labels) and not part.none)
            self._fused = part_of(outputs, "log_probs") is not None
            return self._head.of(outputs, {**inputs, **part.labels}, len(part.ids))

    def _losses_in(self, model: Any, part: Part) -> torch.Tensor:
        """The losses of all samples of a batch. Those of rows that left it are 0 where the run records none of them."""
        came = self._watch.losses_for(int(part.in_batch.sum()))
        if part.counted.all() or (part.labels and (part.none or not self._fused)) or self.pruner.holdout is None:
            return part.spread(came)
        losses = part.spread(came) if part.rows else came.clone()
        which = torch.from_numpy(~part.counted).to(losses.device)
        losses[which] = self._look(model, part).to(losses.dtype)
        return losses

    def _look(self, model: Any, part: Part) -> torch.Tensor:
        """Return the losses of the samples that must not be learned, shape (those,), from a pass without gradients."""
        module = self.accelerator.unwrap_model(model)  # other processes may have no such pass
        called, self._part = self._watch.called, None
        with evaluating(module), self.compute_loss_context_manager():
            if self._own_losses:
                given = self._prepare_inputs(part.apart)
                with self._watch.over(module, given, None, trains=False), self._weighing():
                    self.compute_loss(module, dict(given))
                return self._watch.losses_for(int((~part.counted).sum()))
            given = {**called, **self._prepare_inputs(part.apart if part.rows else part.labels)}
            if part.rows:
                return self._head.of(module(**given), given)[0]
            without_labels(given, ~part.counted, dict.fromkeys(part.labels, IGNORED))
            losses, _ = self._head.of(module(**given), given, len(part.ids))
        return losses[torch.from_numpy(~part.counted).to(losses.device)]

    def _record(self, ids: SomeIds, losses: torch.Tensor, logits: torch.Tensor | None) -> None:
        """Hold the losses of a batch until its optimizer step is made."""
        self._held.append((ids, losses, logits))
        self._trained += 1

    def _step_made(self) -> None:
        """Observe the batches of an optimizer step as one, once it is made. End the epoch after its last.

        So a checkpoint that is saved before it, as on a signal, has neither its losses nor its weights.
        """
        if self._held:
            batches, parts, said = zip(*self._held, strict=True)
            self._held.clear()
            known = all(one is not None for one in said)
            self._observe(np.concatenate(batches), torch.cat(parts), torch.cat(said) if known else None)
            if self._trained == self._batches:
                self._end()

    def _observe(self, ids: SomeIds, losses: torch.Tensor, logits: torch.Tensor | None) -> None:
        """Record the losses of a step, and what the model said, if that is known."""
        raise NotImplementedError


class StepMade(TrainerCallback):
    """Tells the trainer of each optimizer step, before all other callbacks."""

    def __init__(self, trainer: WeighingTrainer) -> None:
        self._trainer = trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Let it record the losses of the step."""
        self._trainer._step_made()
