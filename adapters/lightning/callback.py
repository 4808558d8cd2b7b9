"""The callback: Lightning's Trainer opens and ends the epochs of a run, each as long as it is; and ``observe``."""

from collections.abc import Iterable
from functools import partial
from typing import Any, Never

import numpy as np
import torch
import torch.distributed as dist

from prunedata.adapters.lightning import settings
from prunedata.adapters.lightning.trainer import Trial, counting, is_validation_due, validate_for
from prunedata.adapters.torch.loader import PrunedLoader
from prunedata.adapters.torch.means import check_weights, mean_of
from prunedata.adapters.torch.run import TorchRun
from prunedata.errors import PrunedataError, SkippedSamples
from prunedata.findings.monitor import Mode, is_lower_better, monitored
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

BaseCallback: Any
"""What a callback is derived from. The Trainer of the other name takes it, too: it calls methods by their names."""

try:
    from lightning.pytorch import Callback

    BaseCallback = Callback
except ImportError:
    try:
        from pytorch_lightning import Callback as OtherCallback

        BaseCallback = OtherCallback
    except ImportError as error:
        raise ImportError("prunedata.adapters.lightning needs Lightning: pip install lightning") from error


class DataPruning(BaseCallback):  # type: ignore[misc]
    """Opens an epoch of the pruner with each epoch of ``fit``, and ends it with the observations of ``training_step``.

    Pass ``fit`` a loader that :func:`wrap` returned, and return ``observe(self, losses)`` from ``training_step``. Every
    epoch then has the batches that it keeps, ``trainer.estimated_stepping_batches`` is the sum over all epochs, and
    checkpoints contain the pruner's state. Several processes share an epoch evenly.

    Parameters
    ----------
    pruner : Pruner
        The run. ``Trainer(max_epochs=pruner.schedule.epochs)`` trains all of it.
    monitor : str, optional
        The name under which the module logs its validation figure, such as ``"val_acc"``: it is passed to
        ``pruner.validated`` in each epoch with a validation.
    mode : {"auto", "max", "min"}
        Whether a higher or a lower figure is better. ``"auto"`` infers it from the name, as Keras does: lower for a
        loss, higher for an accuracy. Any other name needs ``"max"`` or ``"min"``.

    Raises
    ------
    PrunedataError
        In ``fit``: if its epochs are not the pruner's, if a setting would cut them short, or if it does not train on
        exactly one loader, wrapped for this pruner.
    SkippedSamples
        At the end of an epoch in which kept samples were not trained on. If ``trainer.should_stop`` stopped ``fit``,
        the epoch is left open instead.
    """

    def __init__(self, pruner: Pruner, *, monitor: str | None = None, mode: Mode = "auto") -> None:
        super().__init__()
        self._monitor, self._lower, self._is_validated = monitor, is_lower_better(monitor, mode), False
        self._figure: float | None = None  # of the newest validation in the epoch; a checkpoint has it with it
        self._is_due = False
        """Whether a validation follows the newest batch: one that goes on from a checkpoint of it lacks that."""
        self.pruner, self._run = pruner, pruner.attach(TorchRun(pruner))
        self._begun: int | None = None
        self._trial = Trial(pruner)
        self._before: dict[str, Any] | None = None  # what ``fit`` finds, to be put back after it
        self._step: int | None = None  # samples of all processes in a batch
        self._saved_step: int | None = None  # the same in the checkpoint that ``fit`` goes on from

    # -- fit begins and ends

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Check the Trainer, and take the lead."""
        if stage != "fit":
            settings.check_others(trainer, stage)
            return
        self.teardown(trainer, pl_module, stage)  # if a tuner failed, nobody told us
        settings.check_settings(trainer, self.pruner.schedule.epochs)
        run, kind = self._run, trainer.__class__
        self._before = {"reload": trainer.reload_dataloaders_every_n_epochs, "class": kind}
        run.join()
        run.place, self._begun = (trainer.global_rank, trainer.world_size), None
        run.leader = partial(self._begin, trainer)
        trainer.reload_dataloaders_every_n_epochs = 1
        trainer.__class__ = counting(kind)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Leave the Trainer as it was; after a ``fast_dev_run`` also the pruner."""
        before, self._before = self._before, None
        if before is None:
            return
        self._run.place, self._run.leader = (0, 1), None
        trainer.reload_dataloaders_every_n_epochs = before["reload"]
        trainer.__class__ = before["class"]
        self._trial.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave the epoch open; the rest as after ``fit``."""
        self.teardown(trainer, pl_module, "fit")

    # -- epochs

    def _begin(self, trainer: Any) -> None:
        """Begin or continue the epoch before its first batch, unless a tuner trains, which takes callbacks away."""
        if trainer.fast_dev_run or self not in trainer.callbacks:
            self._trial.begin()
            return
        self._trial.end()
        if self._begun != self.pruner.next_epoch:
            self._begun = self.pruner.begin_epoch().number

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Check the training loader, and the settings that other callbacks may have changed."""
        settings.check_training(trainer, self.pruner)
        size, saved = trainer.train_dataloader.batch_size, self._saved_step
        self._step, self._saved_step = None if size is None else size * trainer.world_size, None
        if saved is not None and self.pruner.is_open:
            settings.check_step(self._step, saved, trainer.world_size)
        is_over = not trainer.fast_dev_run and trainer.current_epoch == self.pruner.next_epoch + 1
        if self._is_due and self._monitor is not None:
            validate_for(trainer, self.pruner.next_epoch)
        if is_over:
            # The checkpoint is of an epoch's last batch: Lightning takes that epoch to be over, and would see how many
            # batches it had only if the next one had as many.
            self._end()
            trainer.fit_loop.epoch_loop.batch_progress.current.completed = self.pruner.samples

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Check that this is the pruner's epoch, and from now on let validation loaders be as the user wants them."""
        self._check_epoch(trainer)
        if self._before is not None:
            trainer.reload_dataloaders_every_n_epochs = self._before["reload"]

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Stop the clock after the last batch: validation is no training."""
        if trainer.is_last_batch and self._run.delivery is not None:
            self._run.delivery.end()
        self._is_due = self._monitor is not None and is_validation_due(trainer)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Check the validation loaders."""
        settings.check_validation(trainer.val_dataloaders)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Know that this epoch was validated: figures of an epoch before stay in ``trainer.callback_metrics``.

        A checkpoint that is saved now has the figure with it, if it is there already.
        """
        self._is_validated = not trainer.sanity_checking
        if self._is_validated and self._monitor in trainer.callback_metrics:
            self._figure = float(trainer.callback_metrics[self._monitor])
        self._is_due = False

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """End the epoch, and let Lightning ask for the length of the next one."""
        if trainer.fast_dev_run:
            return
        self._check_epoch(trainer)
        if self._is_validated and self._monitor is not None:
            self._figure = monitored(trainer.callback_metrics, self._monitor)
        try:
            self._end()
        except SkippedSamples:
            if not trainer.should_stop:
                raise
        trainer.reload_dataloaders_every_n_epochs = 1

    def _end(self) -> None:
        """End the epoch, with its figure if it has one."""
        figure, self._figure, self._is_due, self._is_validated = self._figure, None, False, False
        if figure is not None and not self.pruner.is_validated:
            self.pruner.validated(figure, lower_is_better=self._lower)
        self.pruner.end_epoch()

    def _check_epoch(self, trainer: Any) -> None:
        if trainer.current_epoch != self.pruner.next_epoch and not trainer.fast_dev_run:
            raise PrunedataError(
                f"Expected epoch {self.pruner.next_epoch}, the pruner's epoch. Got epoch {trainer.current_epoch} "
                "from Lightning: resume both from one checkpoint, fit(ckpt_path=...), or start both again."
            )

    def __reduce__(self) -> Never:
        raise TypeError(
            "Expected one DataPruning for each process, made by the program that each runs. Got a copy, as the "
            "strategy 'ddp_spawn' makes one: use 'ddp', or torchrun."
        )

    # -- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Return the pruner's state: one, or within an epoch of several processes that of each."""
        mine = self.pruner.state_dict(), self._figure
        all_of: list[Any] = [mine]
        world = self._run.place[1]
        if world > 1 and self.pruner.is_open:
            all_of = [None] * world
            dist.all_gather_object(all_of, mine)
        states, figures = zip(*all_of, strict=True)
        return {"ranks": list(states), "step": self._step, "figures": list(figures), "due": self._is_due}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from the result of :meth:`state_dict`."""
        self._trial.end()
        states, (rank, world) = state_dict["ranks"], self._run.place
        self.pruner.load_state_dict(states[rank] if len(states) == world else states)
        self._saved_step, self._is_due = state_dict.get("step"), state_dict.get("due", False)
        figures = state_dict.get("figures", ())
        self._figure = figures[rank] if len(figures) == world else _mean(figures)


def _mean(figures: Iterable[float | None]) -> float | None:
    """What another number of processes gives that goes on: those that saved would have met at the mean of theirs."""
    given = [figure for figure in figures if figure is not None]
    return sum(given) / len(given) if given else None


def observe(
    module: Any,
    losses: torch.Tensor,
    ids: SomeIds | None = None,
    weights: torch.Tensor | None = None,
    logits: torch.Tensor | None = None,
    labels: torch.Tensor | None = None,
) -> torch.Tensor:
    """Record the losses of a batch and return their mean, to be returned from ``training_step``.

    In validation, during a tuner's search, and with a loader that is not wrapped, only return the mean. So the same
    module trains with and without pruning.

    Parameters
    ----------
    module : LightningModule
        The module that trains: ``self`` in ``training_step``.
    losses : Tensor, shape (n,)
        One loss for each sample (``reduction="none"``), on any device. Not modified.
    ids : ndarray of int, shape (n,), optional
        The ids of the samples; needed with ``wrap(..., with_ids=True)``, where a batch is ``(ids, batch)``.
    weights : Tensor, shape (n,), optional
        The weight of each loss in the mean, such as ``class_weights[targets]``. The losses are recorded without them.
    logits : Tensor, shape (n, classes), or (n,) for two classes, optional
        As :meth:`prunedata.Pruner.observe` takes them.
    labels : Tensor of int, shape (n,), optional
        As :meth:`prunedata.Pruner.observe` takes them.

    Raises
    ------
    LossError
        As :meth:`prunedata.Pruner.observe`.
    """
    trainer = module.trainer
    loader = trainer.train_dataloader if trainer.training else None
    if isinstance(loader, PrunedLoader) and any(isinstance(one, DataPruning) for one in trainer.callbacks):
        return loader.observe(losses, ids, weights, logits, labels)
    if weights is None:
        return losses.mean()
    check_weights(weights, losses)
    return mean_of(None, np.arange(len(losses)), losses, None, own=weights)
