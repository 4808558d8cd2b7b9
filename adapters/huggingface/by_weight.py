"""A Trainer that leaves out by weight: its loader, steps and epochs stay as they are."""

from math import ceil
from typing import Any

import numpy as np
import torch

from prunedata.adapters.huggingface.checks import check_args_by_weight, check_samples
from prunedata.adapters.huggingface.ids import OwnLoader, data_of, unprepared
from prunedata.adapters.huggingface.left_out import Part
from prunedata.adapters.huggingface.steps import Change
from prunedata.adapters.huggingface.weighing import WeighingTrainer
from prunedata.adapters.torch.prints import trains_on
from prunedata.errors import PrunedataError
from prunedata.run.adapter import Delivery
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds


class ByWeight(WeighingTrainer):
    """Mixed into the class of a trainer by :func:`wrap`, for a Pruner that shortens no epochs."""

    def _adopt(self, pruner: Pruner, key: str | None) -> None:
        """Take a trainer that was built over; ``key`` is where a sample of a stream has its id."""
        check_args_by_weight(self.args)
        self._own = OwnLoader(self, pruner, key)
        check_samples(data_of(self), pruner, self._own.starts, key)
        if key is None:
            row_of = None if self._own.starts is None else self._own.row_of
            trains_on(pruner, data_of(self), self.args.dataloader_num_workers, row_of=row_of)
        self._watch_losses(pruner)
        self._said = Delivery(-1)
        self._given = np.zeros(0, dtype=np.bool_)
        self._moved = False  # whether it goes on with another number of steps in an epoch

    # -- the Trainer's own methods, in the order in which it calls them

    def get_train_dataloader(self) -> Any:
        """As the Trainer's. In a step its batches have the samples' ids, as ``prunedata_ids``."""
        loader, deal = unprepared(self.accelerator, super().get_train_dataloader)
        prepared = deal(self._own.with_ids(loader))
        self._own.dealt(loader, prepared)
        self._batches = self._own.batches
        return prepared

    def get_batch_samples(self, *args: Any, **options: Any) -> Any:
        """As the Trainer's. Only these batches have ids."""
        return self._own.fetch(super().get_batch_samples, *args, **options)

    def set_initial_training_values(self, args: Any, dataloader: Any) -> Any:
        """As the Trainer's. A run that goes on with other rows has as many epochs, or steps, as it was given."""
        epochs, updates, *rest, total = super().set_initial_training_values(args, dataloader)
        if self._stand is not None and self._batches is not None:
            done, began = self.pruner.next_epoch, self._stand.began
            if args.max_steps > 0:
                epochs = done + max(0, -(-(total - began) // updates))
            else:
                total = began + ceil((args.num_train_epochs - done) * updates)
            self._moved = began != done * updates
        return epochs, updates, *rest, total

    def _init_training_state(self, *args: Any, **options: Any) -> tuple[int, int]:
        found: tuple[int, int] = super()._init_training_state(*args, **options)
        if self._stand is None:
            return found
        step, total = self.state.global_step, self.state.max_steps
        if self._moved and total != self._stand.total:
            self._changes += (Change(step, self._stand.total, total),)
        skipped = 0 if self.args.ignore_data_skip else step - self._stand.began
        return self.pruner.next_epoch, skipped * self.args.gradient_accumulation_steps

    def _run_epoch(self, **options: Any) -> Any:
        pruner, number = self.pruner, options["epoch"]
        passes, epochs = self.state.num_train_epochs, pruner.schedule.epochs
        if number >= epochs or (self._batches is not None and passes > epochs):
            raise PrunedataError(
                f"Expected a schedule of at least as many epochs as there are passes over the data. Got {epochs}, and "
                f"{max(passes, number + 1) if self._batches is not None else 'more'} passes: use a longer one."
            )
        self._run.join()  # before an epoch goes on that several processes had begun
        epoch = self._begin_epoch(number)
        self._trained = self._own.trained_before(options)
        self._began = self.state.global_step - self._trained // self.args.gradient_accumulation_steps
        self._given = np.zeros(pruner.samples, dtype=np.bool_)
        self._said = Delivery(number, given=epoch.keep)
        self._run.add_delivery("the trainer's", self._said)
        result = super()._run_epoch(**options)
        over = not self.control.should_training_stop or bool(self._given[epoch.keep].all())
        if over and pruner.next_epoch == number:
            self._end()
        return result

    def _leave_out(self, batch: Any) -> Part:
        part = super()._leave_out(batch)
        self._given[part.ids] = True
        return part

    def _record(self, ids: SomeIds, losses: torch.Tensor, logits: torch.Tensor | None) -> None:
        """As ever, without the samples by which accelerate fills the processes' last batches: each counts once."""
        if self._own.repeats(self._trained + 1):
            own = self._own.own(ids)
            here = torch.from_numpy(own).to(losses.device)
            ids, losses, logits = ids[own], losses[here], None if logits is None else logits[here]
        super()._record(ids, losses, logits)

    def _observe(self, ids: SomeIds, losses: torch.Tensor, logits: torch.Tensor | None) -> None:
        if len(ids):
            self._run.recorder.add(ids, losses, logits)

    def _end(self) -> None:
        """End the run's epoch. Samples that the trainer's loader did not deliver may be missing."""
        self._said.given = self._given
        self._said.end()
        super()._end()
