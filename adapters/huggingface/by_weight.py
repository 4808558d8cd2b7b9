"""A Trainer that leaves out by weight: its loader, steps and epochs stay as they are."""

from functools import partial
from math import ceil
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler

from prunedata.adapters.huggingface.checks import check_args_by_weight, check_samples
from prunedata.adapters.huggingface.ids import packed_starts, row_of_packed, with_ids
from prunedata.adapters.huggingface.left_out import Part
from prunedata.adapters.huggingface.rate import Change
from prunedata.adapters.huggingface.weighing import WeighingTrainer
from prunedata.adapters.torch.prints import trains_on
from prunedata.errors import PrunedataError
from prunedata.keys import SampleIds
from prunedata.run.adapter import Delivery
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["ByWeight"]


class ByWeight(WeighingTrainer):
    """Mixed into the class of a trainer by :func:`wrap`, for a Pruner with ``leave_out="weight"``."""

    def _adopt(self, pruner: Pruner, key: str | None) -> None:
        """Take a trainer that was built over; ``key`` is where a sample of a stream has its id."""
        check_args_by_weight(self.args)
        self._starts = packed_starts(self.train_dataset)
        check_samples(self.train_dataset, pruner, self._starts, key)
        if key is None:
            row_of = None if self._starts is None else partial(row_of_packed, self._starts)
            trains_on(pruner, self.train_dataset, self.args.dataloader_num_workers, row_of=row_of)
        self._watch_losses(pruner, WeighingTrainer)
        self._key = key
        self._said = Delivery(-1)
        self._given = np.zeros(0, dtype=np.bool_)
        self._moved = False
        """Whether it goes on with another number of steps in an epoch."""
        self._rest = 0
        """How many rows are left for the last batches of several processes, if these are not full."""

    # -- the Trainer's own methods, in the order in which it calls them

    def get_train_dataloader(self) -> Any:
        """As the Trainer's. Its batches have the samples' ids, as ``prunedata_ids``."""
        asked: list[dict[str, Any]] = []

        def later(*given: Any, **options: Any) -> Any:
            asked.append(options)
            return given[0] if len(given) == 1 else given

        self.accelerator.prepare = later
        try:
            plain: Any = super()
            loader = plain.get_train_dataloader()
        finally:
            del self.accelerator.prepare
        prepared = self._with_ids(loader)
        if asked:  # a get_train_dataloader of the user's own may not prepare it
            prepared = self.accelerator.prepare(prepared, **asked[-1])
        self._batches = len(prepared) if hasattr(getattr(prepared, "dataset", None), "__len__") else None
        cut = getattr(loader, "batch_sampler", None)
        if self._batches is not None and self.args.world_size > 1 and type(cut) is BatchSampler and not cut.drop_last:
            split = self.args.accelerator_config.split_batches
            self._rest = len(cut.sampler) % (cut.batch_size * (1 if split else self.args.world_size))  # type: ignore[arg-type]
        return prepared

    def _with_ids(self, loader: Any) -> Any:
        dealt = self._key is not None or bool(self.accelerator.dispatch_batches)
        return with_ids(loader, self._starts, self._key, SampleIds(self.pruner.samples, self.pruner.keys), dealt=dealt)

    def _inner_training_loop(self, *args: Any, **options: Any) -> Any:
        plain: Any = super()
        self._load(options.get("resume_from_checkpoint"))
        return plain._inner_training_loop(*args, **options)

    def set_initial_training_values(self, args: Any, dataloader: Any) -> Any:
        """As the Trainer's. A run that goes on with other rows has as many epochs, or steps, as it was given."""
        plain: Any = super()
        epochs, updates, *rest, total = plain.set_initial_training_values(args, dataloader)
        if self._stand is not None and self._batches is not None:
            done, began = self.pruner.next_epoch, self._stand.began
            if args.max_steps > 0:
                epochs = done + max(0, -(-(total - began) // updates))
            else:
                total = began + ceil((args.num_train_epochs - done) * updates)
            self._moved = began != done * updates
        return epochs, updates, *rest, total

    def _init_training_state(self, *args: Any, **options: Any) -> tuple[int, int]:
        plain: Any = super()
        found: tuple[int, int] = plain._init_training_state(*args, **options)
        if self._stand is None:
            return found
        step, total = self.state.global_step, self.state.max_steps
        if self._moved and total != self._stand.total:
            self._changes += (Change(step, self._stand.total, total),)
        skipped = 0 if self.args.ignore_data_skip else step - self._stand.began
        return self.pruner.next_epoch, skipped * self.args.gradient_accumulation_steps

    def _run_epoch(self, **options: Any) -> Any:
        plain: Any = super()
        pruner, number = self.pruner, options["epoch"]
        passes, epochs = self.state.num_train_epochs, pruner.schedule.epochs
        if number >= epochs or (self._batches is not None and passes > epochs):
            raise PrunedataError(
                f"Expected a schedule of at least as many epochs as there are passes over the data. Got {epochs}, and "
                f"{max(passes, number + 1) if self._batches is not None else 'more'} passes: use a longer one."
            )
        self._run.join()  # before an epoch goes on that several processes had begun
        epoch = pruner.begin_epoch()
        if epoch.number != number:
            raise PrunedataError(
                f"Expected the trainer to go on with epoch {epoch.number}, the pruner's epoch. Got epoch {number}."
            )
        self._open(epoch, options)
        result = plain._run_epoch(**options)
        over = not self.control.should_training_stop or bool(self._given[epoch.keep].all())
        if over and pruner.next_epoch == number:
            self._end()
        return result

    def _open(self, epoch: Epoch, options: Any) -> None:
        """Get ready for the batches of an epoch that was begun; ``options`` are those of ``_run_epoch``."""
        resumed = options["resume_from_checkpoint"] is not None and options["epoch"] == options["epochs_trained"]
        self._trained = options["steps_trained_in_current_epoch"] if resumed else 0
        self._began = self.state.global_step - self._trained // self.args.gradient_accumulation_steps
        self._held.clear()
        self._given = np.zeros(self.pruner.samples, dtype=np.bool_)
        self._said = Delivery(epoch.number, given=epoch.keep)
        self._run.add_delivery("the trainer's", self._said)

    def _leave_out(self, batch: Any) -> Part:
        part = super()._leave_out(batch)
        self._given[part.ids] = True
        return part

    # -- what they share

    def _record(self, ids: SomeIds, losses: torch.Tensor, logits: torch.Tensor | None) -> None:
        """As ever, without the samples by which accelerate fills the processes' last batches: each counts once."""
        if self._rest and self._trained + 1 == self._batches:
            rows = np.arange(len(ids)) if self._starts is None else row_of_packed(self._starts, ids)
            rows = np.cumsum(np.diff(rows, prepend=rows[:1]) != 0)  # from 0, in their order
            own = rows < self._rest - self.args.process_index * (rows[-1] + 1)
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
