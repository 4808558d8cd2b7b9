"""A Trainer that leaves out by weight: its loader, steps and epochs stay as they are."""

from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler

from prunedata.adapters.huggingface import checkpoint
from prunedata.adapters.huggingface.checks import check_args_by_weight, check_samples
from prunedata.adapters.huggingface.ids import packed_starts, with_ids
from prunedata.adapters.huggingface.left_out import Part
from prunedata.adapters.huggingface.weighing import WeighingTrainer
from prunedata.adapters.torch.prints import names_in, prints_in
from prunedata.errors import PrunedataError
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
        if self._starts is None and key is None:
            prints = prints_in(self.train_dataset, self.args.dataloader_num_workers)
            pruner.trains_on(prints, lambda: names_in(self.train_dataset))
        self._watch_losses(pruner, WeighingTrainer)
        self._key = key
        self._said = Delivery(-1)
        self._given = np.zeros(0, dtype=np.bool_)
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
        return with_ids(loader, self._starts, self._key, dealt=dealt)

    def _inner_training_loop(self, *args: Any, **options: Any) -> Any:
        plain: Any = super()
        checkpoint.load(options.get("resume_from_checkpoint"), self.args, self.pruner)
        return plain._inner_training_loop(*args, **options)

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
                f"Expected the trainer to go on with epoch {epoch.number}, the pruner's epoch. Got epoch {number}, as "
                "the Trainer counts its batches: by weight resume with as many rows as the checkpoint was saved with; "
                "a stream resumes in its first pass only."
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
        self._held.clear()
        self._given = np.zeros(self.pruner.samples, dtype=np.bool_)
        self._said = Delivery(epoch.number, given=epoch.keep)
        self._run.add_delivery("the trainer's", self._said)

    def _leave_out(self, batch: Any) -> Part:
        part = super()._leave_out(batch)
        self._given[part.ids] = True
        return part

    def _save_rng_state(self, output_dir: str) -> None:
        plain: Any = super()
        plain._save_rng_state(output_dir)
        checkpoint.save(output_dir, self.args, self.pruner, [])

    # -- what they share

    def _record(self, ids: SomeIds, losses: torch.Tensor, logits: torch.Tensor | None) -> None:
        """As ever, without the samples by which accelerate fills the processes' last batches: each counts once."""
        if self._rest and self._trained + 1 == self._batches:
            rows = np.arange(len(ids)) if self._starts is None else np.searchsorted(self._starts, ids, "right")
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
