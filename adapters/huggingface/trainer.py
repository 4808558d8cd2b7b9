"""The mixin: a Trainer whose epochs are those of a run, each of its own length."""

from typing import Any

import numpy as np
import torch
import transformers
from transformers.trainer_pt_utils import LengthGroupedSampler

from prunedata.adapters.huggingface import checks
from prunedata.adapters.huggingface.ids import BatchesWithIds, unprepared
from prunedata.adapters.huggingface.steps import Change, Steps, stretch
from prunedata.adapters.huggingface.weighing import WeighingTrainer
from prunedata.adapters.torch import wrap
from prunedata.adapters.torch.prints import trains_on
from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds


class PruneTrainerMixin(WeighingTrainer):
    """Lets a Trainer train on pruned data: ``class MyTrainer(PruneTrainerMixin, Trainer)``, in this order.

    It takes the arguments of the Trainer, and ``pruner``. ``num_train_epochs`` must be the schedule's number of epochs.

    Parameters
    ----------
    pruner : Pruner
        The run, over ``len(train_dataset)`` samples: ids are positions in ``train_dataset``. An epoch of it ends
        with its last batch, before that epoch's evaluation and checkpoint; a checkpoint has its state, and
        ``train(resume_from_checkpoint=True)`` loads it.

    Raises
    ------
    PrunedataError
        If the Trainer of this release lacks a method that the mixin needs, or an argument cannot be used with pruning.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        bases = cls.__mro__
        if transformers.Trainer in bases and bases.index(transformers.Trainer) < bases.index(PruneTrainerMixin):
            raise PrunedataError(
                f"Expected class {cls.__name__}(PruneTrainerMixin, Trainer). Got Trainer first, which hides the mixin."
            )

    def __init__(self, *args: Any, pruner: Pruner, **options: Any) -> None:
        checks.check_release()
        if not isinstance(pruner, Pruner):
            raise PrunedataError(f"Expected a Pruner as pruner. Got {type(pruner).__name__}.")
        checks.check_stream(options.get("train_dataset"))
        if options.get("args") is not None:
            checks.check_args(options["args"], pruner)  # before the trainer prepares its dataset
        super().__init__(*args, **options)
        self._adopt(pruner)

    def _adopt(self, pruner: Pruner) -> None:
        """Take a trainer that was built over."""
        checks.check_args(self.args, pruner)
        checks.check_dataset(self.train_dataset, pruner)
        trains_on(pruner, self.train_dataset, self.args.dataloader_num_workers)
        self._watch_losses(pruner)
        self._run.place = self.args.process_index, self.args.world_size
        self._loader: Any = None
        self._sampler: Any = None
        self._behind = 0

    # -- the Trainer's own methods, in the order in which it calls them

    def get_train_dataloader(self) -> Any:
        """As the Trainer's, pruned. Its batches have the samples' ids, as ``prunedata_ids``."""
        # As it is before accelerate deals it to the processes: the pruned order is dealt already.
        loader, _ = unprepared(self.accelerator, super().get_train_dataloader)
        checks.check_loader(loader, self.pruner, self.args.world_size)
        self._loader = BatchesWithIds(wrap(loader, self.pruner, with_ids=True))
        return self._loader

    def _get_train_sampler(self, *args: Any, **options: Any) -> Any:
        self._sampler = super()._get_train_sampler(*args, **options)
        if type(self._sampler) is LengthGroupedSampler:
            self._sampler.gives_once = True  # type: ignore[attr-defined]
        if hasattr(self._sampler, "generator") and self._sampler.generator is None:
            # It is seeded in each epoch, so that one that is resumed has the same order.
            self._sampler.generator = torch.Generator()
        return self._sampler

    def _inner_training_loop(self, *args: Any, **options: Any) -> Any:
        self._run.leader = lambda: None  # nothing to do: _run_epoch begins each epoch
        try:
            return super()._inner_training_loop(*args, **options)
        finally:
            self._run.leader = None

    def set_initial_training_values(self, args: Any, dataloader: Any) -> Any:
        """As the Trainer's, for epochs of different lengths."""
        if self._loader is None:
            raise PrunedataError(
                f"Expected the get_train_dataloader of PruneTrainerMixin. Got that of {type(self).__name__}: define it "
                "in another class, Mine(Trainer), and derive the trainer from (PruneTrainerMixin, Mine)."
            )
        total_train_batch_size = checks.check_values(super().set_initial_training_values(args, dataloader), args)
        pruner, steps = self.pruner, self._steps
        epochs = pruner.schedule.epochs
        first = min(pruner.next_epoch, epochs - 1)
        visits, batches = sum(map(pruner.kept_in, range(epochs))), steps.batches[first]
        return epochs, steps.of(first), pruner.samples, visits, total_train_batch_size, batches, steps.total

    def _init_training_state(self, *args: Any, **options: Any) -> tuple[int, int]:
        super()._init_training_state(*args, **options)
        epoch, steps = self.pruner.next_epoch, self._steps
        checks.check_steps(self.state, epochs=self.pruner.schedule.epochs, steps=steps.total)
        behind = self.state.global_step - steps.before(epoch)
        if not 0 <= behind <= steps.of(epoch):
            raise PrunedataError(
                f"Expected to go on from step {steps.before(epoch)}, where epoch {epoch} begins, or later in it. Got "
                f"step {self.state.global_step} in trainer_state.json: it is of another checkpoint."
            )
        self._behind = behind * steps.accumulate
        if self._changes and self._changes[-1].new != steps.total:  # it was lengthened
            self._changes += (Change(self.state.global_step, self._changes[-1].new, steps.total),)
        return epoch, 0  # the loader itself leaves out what is behind

    def _run_epoch(self, **options: Any) -> Any:
        self._follow_changes()
        epoch = self._begin_epoch(options["epoch"])
        steps = self._steps
        behind, self._behind = self._behind, 0
        self._batches, self._trained = steps.batches[epoch.number], behind
        self._began = steps.before(epoch.number)
        if getattr(self._sampler, "generator", None) is not None:
            state = np.random.SeedSequence([epoch.seed % (1 << 64), epoch.number]).generate_state(1, np.uint64)
            self._sampler.generator.manual_seed(int(state[0]))
        left = self._batches - behind
        options |= {"steps_in_epoch": left, "num_update_steps_per_epoch": -(-left // steps.accumulate)}
        result = super()._run_epoch(**options)
        if self._trained < self._batches and not self.control.should_training_stop:
            self.pruner.end_epoch()  # says what was skipped
        return result

    @property
    def _steps(self) -> Steps:
        return Steps(self._loader.lengths(), self.args.gradient_accumulation_steps)

    def _follow_changes(self) -> None:
        """Take note if the run has another number of steps than it had before: it was advised, or has new windows."""
        total = self._steps.total
        if total != self.state.max_steps:
            change = Change(self.state.global_step, self.state.max_steps, total)
            stretch(self.lr_scheduler, change)
            self._changes += (change,)
            self.state.max_steps = total

    def _observe(self, ids: SomeIds, losses: torch.Tensor, logits: torch.Tensor | None) -> None:
        self._loader.observe(losses, ids, logits=logits)

    def _step_made(self) -> None:
        """As ever, and set ``state.epoch``, which the Trainer takes for that of a whole epoch in a resumed one."""
        super()._step_made()
        number = self.pruner.next_epoch
        whole = self._trained == self._batches
        self.state.epoch = float(number) if whole else number + self._trained / (self._batches or 1)
