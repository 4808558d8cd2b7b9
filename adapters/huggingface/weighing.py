"""A Trainer that leaves out by weight: its loader, steps and epochs stay as they are."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from prunedata.adapters.huggingface import checkpoint
from prunedata.adapters.huggingface.asking import asked
from prunedata.adapters.huggingface.batches import IDS
from prunedata.adapters.huggingface.checks import check_args_by_weight, check_samples
from prunedata.adapters.huggingface.ids import packed_starts, with_ids
from prunedata.adapters.huggingface.left_out import (
    Part,
    is_flat,
    losses_of_sequences,
    without_labels,
    without_rows,
)
from prunedata.adapters.huggingface.watched import WatchedTrainer
from prunedata.errors import PrunedataError
from prunedata.run.adapter import Delivery
from prunedata.run.pruner import Pruner

__all__ = ["ByWeight"]


class ByWeight(WatchedTrainer):
    """What :func:`prune` mixes into the class of a trainer, for a Pruner with ``by="weight"``."""

    def _adopt(self, pruner: Pruner, key: str | None) -> None:
        """Take a trainer that was built over; ``key`` is where a sample of a stream has its id."""
        check_args_by_weight(self.args)
        self._starts = packed_starts(self.train_dataset)
        check_samples(self.train_dataset, pruner, self._starts, key)
        self._watch_losses(pruner, ByWeight)
        self._key = key
        self._part: Part | None = None
        self._said = Delivery(-1)
        self._given = np.zeros(0, dtype=np.bool_)
        self._length: int | None = None
        self._scaled: bool | None = None
        """Whether the loss is divided by the labels of the whole step; None if that is not known yet."""

    # -- the Trainer's own methods, in the order in which it calls them

    def get_train_dataloader(self) -> Any:
        """As the Trainer's. Its batches have the samples' ids, as ``prunedata_ids``."""
        self.accelerator.prepare = lambda *given, **_: given[0] if len(given) == 1 else given
        try:
            plain: Any = super()
            loader = plain.get_train_dataloader()
        finally:
            del self.accelerator.prepare
        prepared = self.accelerator.prepare(with_ids(loader, self._starts, self._key))
        self._length = len(prepared) if hasattr(prepared.dataset, "__len__") else None
        return prepared

    def _inner_training_loop(self, *args: Any, **options: Any) -> Any:
        plain: Any = super()
        resume = options.get("resume_from_checkpoint")
        if resume is not None:
            checkpoint.load(resume, self.args, self.pruner)
        elif self.pruner.next_epoch:
            raise PrunedataError(
                f"Expected a run at its beginning. Got a pruner that stands at epoch {self.pruner.next_epoch}: go on "
                "with train(resume_from_checkpoint=True), or train anew with a new Pruner."
            )
        return plain._inner_training_loop(*args, **options)

    def _run_epoch(self, **options: Any) -> Any:
        plain: Any = super()
        pruner, number = self.pruner, options["epoch"]
        passes, epochs = self.state.num_train_epochs, pruner.schedule.epochs
        if number >= epochs or (self._length is not None and passes > epochs):
            raise PrunedataError(
                f"Expected a schedule of at least as many epochs as there are passes over the data. Got {epochs}, and "
                f"{max(passes, number + 1) if self._length is not None else 'more'} passes: give it more."
            )
        epoch = pruner.begin_epoch()
        if epoch.number != number:
            raise PrunedataError(
                f"Expected the trainer to go on with epoch {epoch.number}, where the pruner stands. Got epoch {number}"
                ": a stream can be gone on with in its first pass only, as the Trainer counts no later ones."
            )
        resumed = options["resume_from_checkpoint"] is not None and number == options["epochs_trained"]
        self._trained = options["steps_trained_in_current_epoch"] if resumed else 0
        self._held.clear()
        self._given = np.zeros(pruner.samples, dtype=np.bool_)
        self._said = Delivery(number, given=epoch.keep)
        self._run.set_out("the trainer's", self._said)
        result = plain._run_epoch(**options)
        over = not self.control.should_training_stop or bool(self._given[epoch.keep].all())
        if over and pruner.next_epoch == number:
            self._end()
        return result

    def _end(self) -> None:
        """End the run's epoch: what the trainer's loader did not give need not have come."""
        self._said.given = self._given
        self._said.end()
        self.pruner.end_epoch()

    def _get_num_items_in_batch(self, batch_samples: list[Any], *args: Any, **options: Any) -> Any:
        """As the Trainer's, of what counts: it is called with all batches of a step, before the first is trained on."""
        plain: Any = super()
        if not any(IDS in batch for batch in batch_samples):
            return plain._get_num_items_in_batch(batch_samples, *args, **options)
        seen = []
        for batch in batch_samples:
            part = batch[IDS] = self._leave_out(batch)
            seen.append(batch)
            if part.none and isinstance(batch.get("labels"), torch.Tensor) and not batch["labels"].is_floating_point():
                seen[-1] = dict(batch)  # it is trained on with a factor of 0, as it is
                without_labels(seen[-1], np.zeros(1 if part.rows else len(part.ids), dtype=np.bool_))
        self._weigh_parts([batch[IDS] for batch in batch_samples])
        items = plain._get_num_items_in_batch(seen, *args, **options)
        if self.pruner.current.which_count is None or items is None:
            return items
        return items.clamp(min=1) if isinstance(items, torch.Tensor) else max(1, items)

    def _leave_out(self, batch: Any) -> Part:
        """Take out of a batch what does not count."""
        ids = batch[IDS].cpu().numpy()
        self._given[ids] = True
        counted = self.pruner.current.which_count
        part = Part(ids, np.ones(len(ids), dtype=np.bool_) if counted is None else counted[ids], self._own_losses)
        if part.counted.all():
            return Part(ids, part.counted)
        if part.rows:
            del batch[IDS]
            without_rows(batch, part.counted)
        elif not part.none:
            without_labels(batch, part.counted)
        return part

    def _weigh_parts(self, parts: list[Part]) -> None:
        """Say what the mean of each batch counts in the mean of the step, over its batches and all processes."""
        if self.pruner.current.which_count is None:
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
                "Expected a Trainer that counts the labels of a step before it. Got one that doesn't: use a Pruner "
                "that shortens epochs."
            )
        weighed = self._weights_of(part)
        asking = asked(self, self._watch, asks=self._asks) if self._own_losses else nullcontext()
        self._part = part
        try:
            with self._watch.over(model, inputs, weighed), asking:
                loss = plain.training_step(model, inputs, *args, **options)
        finally:
            self._part = None
        self._record(part)
        return loss

    def _weights_of(self, part: Part) -> torch.Tensor | None:
        """What the policy's weights of a batch are, if they are not all 0 or 1."""
        epoch = self.pruner.current
        if epoch.weights is None or part.rows:
            return None
        weights = np.where(part.counted, epoch.weights[part.ids], 1)
        return None if (weights == 1).all() else torch.from_numpy(weights.astype(np.float32))

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        """As the Trainer's. In training it is over what counts."""
        plain: Any = super()
        part, items = self._part, options.get("num_items_in_batch")
        result = plain.compute_loss(model, inputs, *args, **options)
        if part is None:
            return result
        loss = result[0] if isinstance(result, tuple) else result
        alone = part.factor != 1 and not part.none and not self._is_scaled(loss, items)
        loss = self._watch.weigh(loss)
        if part.none or alone:
            loss = loss * (part.factor if alone else 0)
        return (loss, *result[1:]) if isinstance(result, tuple) else loss

    def _is_scaled(self, loss: torch.Tensor, items: Any) -> bool:
        """Whether a loss is divided by the labels of the whole step, and not by those of its batch."""
        if items is None or self.compute_loss_func is not None:  # type: ignore[attr-defined]
            return items is not None
        if self.args.world_size * self.args.gradient_accumulation_steps == 1:
            return False
        if self._scaled is None:
            smoother = self.label_smoother  # type: ignore[attr-defined]
            if smoother is not None:
                self._scaled = "num_items_in_batch" in type(smoother).__call__.__code__.co_varnames
            elif any(each.__module__.startswith("trl.") for each in type(self).__mro__):
                self._scaled = True
            else:
                return self._by_value(float(loss), float(items))
        return self._scaled

    def _by_value(self, loss: float, items: float) -> bool:
        """As the losses of the samples say it. Many models are given the labels of the step and ignore them."""
        losses, counts = self._watch.losses, self._watch.counts
        if losses is None or counts is None:
            return False
        total, labels = float((losses * counts).sum()), float(counts.sum())
        world = self.args.world_size if self.args.average_tokens_across_devices else 1
        scaled, own = abs(loss - total / items * world), abs(loss - total / max(labels, 1.0))
        if items != labels * world:  # else both are alike
            self._scaled = scaled < own
        return scaled < own

    def _save_rng_state(self, output_dir: str) -> None:
        plain: Any = super()
        plain._save_rng_state(output_dir)
        checkpoint.save(output_dir, self.args, self.pruner, [])

    # -- what they share

    def _losses_of(self, outputs: Any, inputs: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self._own_losses or self._part is None or not is_flat(inputs):
            return super()._losses_of(outputs, inputs)
        with self.pruner.charge:
            return losses_of_sequences(outputs, inputs, len(self._part.ids), shifted=self._shifted)

    def _record(self, part: Part) -> None:
        """Observe a batch; those that make one optimizer step are observed as one. End the epoch after its last."""
        if part.rows and not part.counted.all():
            came = self._watched(max(1, int(part.counted.sum())))
            losses = torch.zeros(len(part.ids), dtype=came.dtype, device=came.device)  # the run asks for no others
            if not part.none:
                losses[torch.from_numpy(part.counted).to(came.device)] = came
        else:
            losses = self._watched(len(part.ids))
        self._held.append((part.ids, losses))
        self._trained += 1
        last = self._trained == self._length
        if last or self.accelerator.sync_gradients:
            batches, parts = zip(*self._held, strict=True)
            self._run.recorder.add(np.concatenate(batches), torch.cat(parts))
            self._held.clear()
        if last:
            self._end()
