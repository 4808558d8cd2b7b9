"""Training steps of a Trainer by weight: the mean over the samples that count, weighted as the epoch needs."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch

from prunedata.adapters.huggingface import checkpoint
from prunedata.adapters.huggingface.asking import asked
from prunedata.adapters.huggingface.heads import IGNORED, ignored_labels, part_of
from prunedata.adapters.huggingface.ids import IDS
from prunedata.adapters.huggingface.left_out import (
    Part,
    evaluating,
    is_flat,
    losses_of_sequences,
    without_labels,
    without_rows,
)
from prunedata.adapters.huggingface.rate import Change, stretch
from prunedata.adapters.huggingface.scaled import ScaledTrainer
from prunedata.errors import PrunedataError
from prunedata.types import SomeIds

__all__ = ["WeighingTrainer"]


class WeighingTrainer(ScaledTrainer):
    """Trains on the samples that count, by ``Epoch.loss_weights``, and records the losses of each step.

    Samples that count nothing lose their labels before those of a step are counted; or, where a loss knows no label
    that has none, their rows leave the batch.
    """

    compute_loss_context_manager: Any
    lr_scheduler: Any
    _prepare_inputs: Any

    _batches: int | None = None
    """How many batches the epoch has, if that is known."""
    _part: Part | None = None
    """What counts of the batch that is trained on."""
    _stand: checkpoint.Stand | None = None
    """Where the run stood in the checkpoint from which it goes on; None if it began."""
    _changes: tuple[Change, ...] = ()
    """How the number of its steps has changed."""
    _began = 0
    """The optimizer step at which the open epoch began."""
    _save_waits = False
    _looked_at = -1

    # -- the Trainer's own methods, in the order in which it calls them

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """As the Trainer's. If the number of steps has changed before the run was resumed, it changes again."""
        plain: Any = super()
        made = self.lr_scheduler is None
        scheduler = plain.create_scheduler(self._changes[0].old if self._changes else num_training_steps, optimizer)
        for change in self._changes if made else ():
            stretch(scheduler, change)
        return scheduler

    def _get_num_items_in_batch(self, batch_samples: list[Any], *args: Any, **options: Any) -> Any:
        """As the Trainer's, of what counts: it is called with all batches of a step, before the first is trained on."""
        plain: Any = super()
        if not any(IDS in batch for batch in batch_samples):
            return plain._get_num_items_in_batch(batch_samples, *args, **options)
        seen = []
        for batch in batch_samples:
            part = batch[IDS] = self._leave_out(batch)
            seen.append(batch)
            labels = batch.get("labels")
            if isinstance(labels, torch.Tensor) and not labels.is_floating_point() and (part.none or part.labels):
                seen[-1] = dict(batch)  # the Trainer counts all labels but these
                without_labels(seen[-1], part.counted[part.in_batch], {"labels": IGNORED, "shift_labels": IGNORED})
        self._weigh_parts([batch[IDS] for batch in batch_samples])
        items = plain._get_num_items_in_batch(seen, *args, **options)
        if not self.pruner.current.zero_weights or items is None:
            return items
        return items.clamp(min=1) if isinstance(items, torch.Tensor) else max(1, items)

    def _leave_out(self, batch: Any) -> Part:
        """Remove the samples that do not count from a batch."""
        ids, epoch = batch.pop(IDS), self.pruner.current
        ids = ids.cpu().numpy() if isinstance(ids, torch.Tensor) else ids
        counted = np.ones(len(ids), dtype=np.bool_) if not epoch.zero_weights else epoch.trained[ids]
        part = Part(ids, epoch.loss_weights(ids), counted)
        if counted.all():
            return part
        ignored = {} if self._own_losses else ignored_labels(self.model, batch)
        if ignored:
            part.labels = {name: batch[name] for name in ignored if batch.get(name) is not None}
            if not part.none:  # else it is trained on with a factor of 0, as it is
                without_labels(batch, counted, ignored)
            return part
        part.rows = True
        if self.pruner.holdout is not None:
            part.apart = dict(batch)
            without_rows(part.apart, ~counted)
        without_rows(batch, part.in_batch)
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
        plain: Any = super()
        part = inputs.pop(IDS, None)
        if part is None:
            return plain.training_step(model, inputs, *args, **options)
        if not isinstance(part, Part):
            raise PrunedataError(
                "Expected a Trainer whose _get_num_items_in_batch sees all batches of a step before it. Got one that "
                f"doesn't call it: {type(self).__name__} may override get_batch_samples, so leave that to the Trainer."
            )
        self._part = part
        try:
            with self._watch.over(model, inputs, *part.weighed()), self._asking():
                loss = plain.training_step(model, inputs, *args, **options)
            logits = self._logits_in(part)
            losses = self._losses_in(model, part)
        finally:
            self._part = None
        self._record(part.ids, losses, logits)
        return loss

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Use the outputs that a user's own ``compute_loss`` returns to compute the losses."""
        with asked(self, self._watch, self._weighed, asks=self._asks) if self._own_losses else nullcontext():
            yield

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        """Compute the Trainer's loss; in training over the samples that count."""
        plain: Any = super()
        result = plain.compute_loss(model, inputs, *args, **options)
        if self._part is None or self._own_losses:  # these are weighed when their losses are known: see _asking
            return result
        items = options.get("num_items_in_batch")
        if isinstance(result, tuple):
            return (self._weighed(result[0], items), *result[1:])
        return self._weighed(result, items)

    def _weighed(self, loss: torch.Tensor, items: Any) -> torch.Tensor:
        """Return the loss of a batch by the weights of its samples, times its share in the step."""
        part = self._part
        if part is None:
            return loss
        if part.none:
            return torch.nan_to_num(loss) * 0
        alone = part.factor != 1 and not self._is_scaled(loss.detach(), items)
        loss = self._watch.weigh(loss)
        return loss * part.factor if alone else loss

    def _maybe_log_save_evaluate(self, *args: Any, **options: Any) -> None:
        """As the Trainer's. A checkpoint at an epoch's last step waits for the evaluation at the epoch's end.

        So it has the epoch's figure: a run that goes on from it would never get that.
        """
        plain: Any = super()
        step, control = self.state.global_step, self.control
        first, self._looked_at = step != self._looked_at, step  # it is called after each step, and at an epoch's end
        if not first:
            control.should_save |= self._save_waits
            self._save_waits = False
        elif self._trained == self._batches and control.should_save and not control.should_evaluate:
            self._save_waits, control.should_save = True, False
        plain._maybe_log_save_evaluate(*args, **options)

    def _save_rng_state(self, output_dir: str) -> None:
        plain: Any = super()
        plain._save_rng_state(output_dir)
        state: Any = self.state
        began = self._began if self.pruner.is_open else state.global_step
        stand = checkpoint.Stand(self._changes, began, state.max_steps)
        checkpoint.save(output_dir, self.args, self.pruner, stand)

    def _load(self, folder: str | None) -> None:
        """Let the run go on from a checkpoint; None if it begins."""
        self._stand = checkpoint.load(folder, self.args, self.pruner)
        self._changes = () if self._stand is None else self._stand.changes

    # -- the losses of samples

    def _losses_of(self, outputs: Any, inputs: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        part = self._part
        if self._own_losses or part is None:
            return super()._losses_of(outputs, inputs)
        some_out = bool(part.labels) and not part.none
        self._compare(outputs, inputs, some_out=some_out)
        self._fused = part_of(outputs, "log_probs") is not None
        with self.pruner.charge:
            inputs = {**inputs, **part.labels}
            if is_flat(inputs):
                return losses_of_sequences(outputs, inputs, len(part.ids), shifted=self._shifted)
            return self._known_losses(outputs, inputs)

    def _losses_in(self, model: Any, part: Part) -> torch.Tensor:
        """The losses of all samples of a batch. Those of rows that left it are 0 where the run records none of them."""
        came = self._watched(int(part.in_batch.sum()))
        if part.counted.all() or (part.labels and (part.none or not self._fused)) or self.pruner.holdout is None:
            return came if not part.rows else self._spread(part, came)
        losses = self._spread(part, came) if part.rows else came.clone()
        which = torch.from_numpy(~part.counted).to(losses.device)
        losses[which] = self._look(model, part).to(losses.dtype)
        return losses

    def _logits_in(self, part: Part) -> torch.Tensor | None:
        """What the model said of the samples of a batch, if it said it of each; 0 where they have left the batch."""
        came = self._watch.logits
        if came is None or len(came) != int(part.in_batch.sum()):
            return None
        return self._spread(part, came) if part.rows else came

    @staticmethod
    def _spread(part: Part, came: torch.Tensor) -> torch.Tensor:
        """The losses, or logits, of the rows that are left, in their places."""
        losses = torch.zeros((len(part.ids), *came.shape[1:]), dtype=came.dtype, device=came.device)
        losses[torch.from_numpy(part.in_batch).to(came.device)] = came
        return losses

    def _look(self, model: Any, part: Part) -> torch.Tensor:
        """Return the losses of the samples that must not be learned, shape (those,), from a pass without gradients."""
        module = self.accelerator.unwrap_model(model)  # other processes may have no such pass
        called, self._part = self._watch.called, None
        with evaluating(module), self.compute_loss_context_manager():
            if self._own_losses:
                given = self._prepare_inputs(part.apart)
                with self._watch.over(module, given, None, trains=False), self._asking():
                    self.compute_loss(module, dict(given))
                return self._watched(int((~part.counted).sum()))
            if part.rows:
                given = {**called, **self._prepare_inputs(part.apart)}
                return self._known_losses(module(**given), given)[0]
            given = {**called, **self._prepare_inputs(part.labels)}
            without_labels(given, ~part.counted, dict.fromkeys(part.labels, IGNORED))
            outputs = module(**given)
            if is_flat(given):
                losses, _ = losses_of_sequences(outputs, given, len(part.ids), shifted=self._shifted)
            else:
                losses, _ = self._known_losses(outputs, given)
        return losses[torch.from_numpy(~part.counted).to(losses.device)]

    def _record(self, ids: SomeIds, losses: torch.Tensor, logits: torch.Tensor | None) -> None:
        """Observe a batch; those that make one optimizer step are observed as one. End the epoch after its last."""
        self._held.append((ids, losses, logits))
        self._trained += 1
        last = self._trained == self._batches
        if last or self.accelerator.sync_gradients:
            batches, parts, said = zip(*self._held, strict=True)
            known = all(one is not None for one in said)
            self._observe(np.concatenate(batches), torch.cat(parts), torch.cat(said) if known else None)
            self._held.clear()
        if last:
            self._end()

    def _observe(self, ids: SomeIds, losses: torch.Tensor, logits: torch.Tensor | None) -> None:
        """Record the losses of a step, and what the model said, if that is known."""
        raise NotImplementedError

    def _end(self) -> None:
        """End the run's epoch."""
        self.pruner.end_epoch()
