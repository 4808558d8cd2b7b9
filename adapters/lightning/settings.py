"""Checks of a Trainer's settings and loaders: raise an error for those that a run does not support."""

from typing import Any

from torch.utils.data import DistributedSampler, IterableDataset

from prunedata.adapters.torch.loader import PrunedLoader
from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner

ALONE = {
    "max_steps": (-1, "the run would end within an epoch. Give the schedule fewer epochs"),
    "overfit_batches": (0.0, "Lightning would put a sampler of its own in the place of ours. Prune a Subset instead"),
    "limit_train_batches": (1.0, "the samples that are cut off would never be observed. Make the data set a Subset"),
}
"""Settings of a Trainer: what has to be left as it is, and what to say of another value."""


def check_settings(trainer: Any, epochs: int) -> None:
    """Raise :class:`PrunedataError` for settings by which epochs would not come out as they are wanted.

    A ``fast_dev_run`` may do what it likes: it leaves nothing behind.
    """
    if trainer.fast_dev_run:
        return
    for name, (expected, why) in ALONE.items():
        got = getattr(trainer, name)
        if got != expected or type(got) is not type(expected):  # limit_train_batches=1 is one batch, 1.0 is all
            raise PrunedataError(f"Expected a Trainer with {name}={expected}, as by default. Got {got}: {why}.")
    if trainer.max_epochs != epochs:
        raise PrunedataError(
            f"Expected Trainer(max_epochs={epochs}), as many as the pruner's schedule has. Got {trainer.max_epochs}: "
            "write max_epochs=pruner.schedule.epochs; to train longer, lengthen the schedule."
        )


def check_training(trainer: Any, pruner: Pruner) -> None:
    """Raise :class:`PrunedataError` for what only shows when training begins: its loader, and what callbacks set."""
    _check_loader(trainer, pruner)
    _check_intervals(trainer, pruner)
    epochs = pruner.schedule.epochs
    if trainer.max_epochs != epochs and not trainer.fast_dev_run:
        raise PrunedataError(
            f"Expected max_epochs to stay {epochs}. Got {trainer.max_epochs} by a callback: "
            "StochasticWeightAveraging passes over the data once more for a model with batch norm. "
            "Use the callback WeightAveraging, and after fit torch.optim.swa_utils.update_bn(loader, model)."
        )


def _check_intervals(trainer: Any, pruner: Pruner) -> None:
    """Raise :class:`PrunedataError` if an epoch to come is too short for the number of batches between validations.

    Lightning raises, too, but not before that epoch.
    """
    every, loader = trainer.val_check_interval, trainer.train_dataloader
    counted = isinstance(every, int) and trainer.check_val_every_n_epoch is not None and trainer.limit_val_batches > 0
    if not counted or isinstance(loader.dataset, IterableDataset) or trainer.fast_dev_run:
        return
    lengths = loader.lengths()
    epoch = min(range(pruner.next_epoch, len(lengths)), key=lengths.__getitem__, default=None)
    if epoch is not None and lengths[epoch] < every:
        raise PrunedataError(
            f"Expected a val_check_interval of at most {lengths[epoch]} batches, as many as epoch {epoch} has. Got "
            f"{every}: take fewer, or a fraction of each epoch, as 0.5, or count the batches of all epochs, by "
            "check_val_every_n_epoch=None."
        )


def _check_loader(trainer: Any, pruner: Pruner) -> None:
    """Raise :class:`PrunedataError` if it is not one pruned loader that is trained on, of this pruner."""
    loader = trainer.train_dataloader
    if not isinstance(loader, PrunedLoader):
        kind = type(loader)
        raise PrunedataError(
            "Expected one loader to train on, the result of wrap(loader, pruner), because the Trainer has DataPruning. "
            f"Got {kind.__module__}.{kind.__qualname__}: wrap it, and pass it to fit() alone, not in a list or a dict."
        )
    if not loader.belongs_to(pruner):
        raise PrunedataError("Expected a loader and a DataPruning of one Pruner. Got two: pass both the same one.")
    if trainer.world_size > 1 and not isinstance(loader.sampler, DistributedSampler):
        raise PrunedataError(
            f"Expected a loader that {trainer.world_size} processes can share evenly: with shuffle=True or False, or "
            "with a DistributedSampler. Got your own sampler or a stream, which may give the processes different "
            "numbers of batches."
        )


def check_step(step: int | None, saved: int, processes: int) -> None:
    """Raise :class:`PrunedataError` if an epoch goes on with other steps: Lightning counts it by them."""
    if step != saved:
        fits = saved % processes == 0
        raise PrunedataError(
            f"Expected {saved} samples in a step of all processes, as in the epoch in which the checkpoint was saved. "
            f"Got {step}, with {processes} process{'es' * (processes > 1)}: "
            + (f"pass the loader batch_size={saved // processes}" if fits else "take a number that divides it")
            + ", or resume from a checkpoint saved between two epochs "
            "(ModelCheckpoint(save_on_train_epoch_end=True))."
        )


def check_others(trainer: Any, stage: str) -> None:
    """Raise :class:`PrunedataError` if ``validate``, ``test`` or ``predict`` gets a wrapped loader.

    This comes before Lightning takes the loader apart, as it does for ``predict``.
    """
    stage = str(getattr(stage, "value", stage))  # Lightning gives a member of an enumeration
    loop = getattr(trainer, f"{stage}_loop", None)
    check_validation(getattr(getattr(loop, "_data_source", None), "instance", None), stage)


def check_validation(loaders: Any, stage: str = "validate") -> None:
    """Raise :class:`PrunedataError` if a pruned loader is to be validated on, or whatever the stage is."""
    each = (
        loaders.values() if isinstance(loaders, dict) else loaders if isinstance(loaders, (list, tuple)) else [loaders]
    )
    if any(isinstance(loader, PrunedLoader) for loader in each):
        raise PrunedataError(f"Expected a loader that isn't pruned to {stage} on. Got the result of wrap().")
