"""Watch a Lightning Trainer in the user's script, for ``prunedata watch``, without changing its weights."""

from collections.abc import Callable
from inspect import signature
from math import ceil
from typing import Any

import numpy as np
from torch.utils._pytree import tree_structure, tree_unflatten
from torch.utils.data import DataLoader, IterableDataset

from prunedata.adapters.lightning.callback import BaseCallback, DataPruning, observe
from prunedata.adapters.lightning.settings import check_settings
from prunedata.adapters.torch.items import Collate, Indexed, has_own_iterator
from prunedata.adapters.torch.loader import PrunedLoader
from prunedata.adapters.torch.wrap import copied, wrap
from prunedata.adapters.watched.captured import Captured
from prunedata.adapters.watched.epochs import LONG, WatchedEpochs, check_ids
from prunedata.adapters.watched.functions import watch_functions
from prunedata.errors import PrunedataError
from prunedata.run.frameworks import ADAPTERS
from prunedata.run.pruner import Pruner
from prunedata.run.rows import original_rows
from prunedata.types import SomeIds

__all__ = ["watch"]


def watch(session: Any, trainer: Any, call: Any) -> Callable[[bool], None]:
    """Watch a call of ``trainer.fit()``, as :class:`prunedata.cli.watching.session.Watch` describes."""
    if any(type(one).__module__.startswith(ADAPTERS) for one in trainer.callbacks if isinstance(one, BaseCallback)):
        raise PrunedataError("the script prunes by itself")
    if trainer.fast_dev_run:
        raise PrunedataError("fast_dev_run trains nothing")
    if "MultiProcessing" in type(trainer.strategy.launcher).__name__:
        raise PrunedataError("its processes are copies of this one; those of strategy='ddp' can be watched")
    given, leaves_out = call.bound(), session.settings.leave_out
    if "dataloader_iter" in signature(given["model"].training_step).parameters:
        raise PrunedataError("its training_step fetches batches by itself: give it batch in place of dataloader_iter")
    if leaves_out:
        _check_leaving_out(trainer, given)
    epochs = WatchedEpochs(session, leaves_out=True, ranks=True)
    _Fit(epochs, trainer, given["model"], leaves_out=leaves_out).begin()
    return epochs.close


def _check_leaving_out(trainer: Any, given: dict[str, Any]) -> None:
    """Raise :class:`PrunedataError` if epochs cannot be shortened; nothing has changed then."""
    try:
        check_settings(trainer, trainer.max_epochs)
        if (trainer.max_epochs or 0) < 1:
            raise PrunedataError(f"max_epochs={trainer.max_epochs} has no late epochs.")
        if given["ckpt_path"] is not None:
            raise PrunedataError("fit goes on from a checkpoint, and nothing is known of the epochs before it.")
    except PrunedataError as error:
        raise PrunedataError(f"nothing can be left out: {error} Without --leave-out it is watched") from error


class _Fit:
    """One ``fit`` that is watched: its loader, whose batches have ids, and its steps."""

    def __init__(self, epochs: WatchedEpochs, trainer: Any, model: Any, *, leaves_out: bool) -> None:
        self._epochs, self._trainer, self._leaves_out = epochs, trainer, leaves_out
        self._model = getattr(model, "_orig_mod", model)
        self._pruner: Pruner | None = None
        self._loaders: list[tuple[Any, Any]] | None = None
        """While the trainer sets up its data: each of its loaders, and what it gets in its place."""
        self._pruned: tuple[Any, Any] = (None, None)
        """A loader, and the one made from it that leaves samples out."""
        self._given: Any = None
        """While the trainer sets up its data: the loader, or a list or dict of loaders, of the user's."""
        self._newest: Any = None
        """The newest loader."""
        self._rows: Any = None
        """The rows that the run's samples were selected from, None if they are their own."""
        self._with_ids = False
        self._ids: SomeIds | None = None
        self._progress = trainer.fit_loop.epoch_loop.batch_progress
        self._callbacks = list(trainer.callbacks)

    def begin(self) -> None:
        """Let the trainer call us: where it takes a loader, a batch, a step, and an epoch."""
        trainer, strategy, epochs = self._trainer, self._trainer.strategy, self._epochs
        own_loader, own_step = strategy.process_dataloader, strategy.training_step
        own_setup, own_epoch = trainer.fit_loop.setup_data, trainer.fit_loop.advance
        own_batch = self._model._on_before_batch_transfer

        def setup_data() -> None:
            source, self._loaders = trainer.fit_loop._data_source, []
            own_source = source.dataloader

            def dataloader() -> Any:
                self._given = own_source()
                return self._given

            source.dataloader = dataloader
            try:
                own_setup()
            finally:
                del source.dataloader
                self._loaders = self._given = None

        def process_dataloader(loader: Any) -> Any:
            loader = own_loader(loader)
            return loader if self._loaders is None else self._loader(loader, self._loaders)

        def take_batch(batch: Any, dataloader_idx: int = 0) -> Any:
            if self._with_ids and trainer.training:
                batch = self._take_ids(batch)
            return own_batch(batch, dataloader_idx)

        def training_step(*args: Any, **options: Any) -> Any:
            ids, self._ids = self._ids, None
            if epochs.stopped or ids is None or self._tries():
                return own_step(*args, **options)
            if not self._leaves_out:
                epochs.guarded(self._open)  # here, as all processes come to this point
            epochs.guarded(lambda: check_ids(ids))
            if epochs.stopped:
                return own_step(*args, **options)
            with Captured(len(ids), (args, options)) as captured:
                result = own_step(*args, **options)
            self._observe(ids, captured, result.get("loss") if isinstance(result, dict) else result)
            return result

        def advance() -> None:
            own_epoch()
            epochs.end()

        for owner, function in (
            (strategy, process_dataloader), (strategy, training_step),
            (trainer.fit_loop, setup_data), (trainer.fit_loop, advance),
        ):  # fmt: skip
            epochs.patch(owner, function.__name__, function)
        epochs.patch(self._model, "_on_before_batch_transfer", take_batch)
        epochs.undone(watch_functions())

    def _take_ids(self, batch: Any) -> Any:
        loader = self._trainer.train_dataloader
        if isinstance(loader, DataLoader):
            self._ids, batch = batch
            return batch
        form = tree_structure(loader)  # one loader may come in a list or a dict
        ((self._ids, batch),) = form.flatten_up_to(batch)
        return tree_unflatten([batch], form)

    def _observe(self, ids: SomeIds, captured: Captured, returned: Any) -> None:
        """Record the losses of a training step that returned this one."""
        if returned is None and self._model.automatic_optimization:  # Lightning does not train on this batch
            self._epochs.none = "its training_step returns no loss"
            return
        if not self._leaves_out:
            self._epochs.guarded(lambda: self._epochs.record_captured(ids, captured, returned))
            if self._progress.is_last_batch:
                self._epochs.guarded(self._epochs.pause)
            return
        losses, logits, labels = self._epochs.losses_in(captured, returned)
        if losses is None:
            raise PrunedataError(
                "Expected a training_step that calls a loss function of PyTorch's, with a loss for each sample. Got "
                f"that of {type(self._model).__name__}, which calls none: leave out in the script, by DataPruning and "
                "observe()."
            )
        known = self._pruner is None or not self._pruner.wants_labels
        observe(self._model, losses, ids, logits=logits, labels=None if known else labels)

    # -- the loader

    def _loader(self, loader: Any, others: list[tuple[Any, Any]]) -> Any:
        """The loader to train on, whose batches have ids; the given one if it cannot be watched."""
        epochs = self._epochs
        if others:
            epochs.stop(PrunedataError("it trains on several loaders at once"))
            for own, given in others:  # nothing has iterated them yet
                vars(given).update(vars(own))
        epochs.guarded(lambda: self._join(loader))
        epochs.agree("another process cannot be watched")
        self._with_ids = not epochs.stopped
        if epochs.stopped:
            return loader
        if self._leaves_out:
            return self._pruned[1]
        replaced = {"dataset": Indexed(loader.dataset), "collate_fn": Collate(loader.collate_fn, tells=True)}
        like = copied(loader, type(loader), replaced)
        others.append((loader, like))
        return like

    def _join(self, loader: Any) -> None:
        """Take the samples of a loader for those of the run."""
        if isinstance(loader, PrunedLoader):
            raise PrunedataError("the script prunes by itself")
        if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
            raise PrunedataError(
                f"it trains on {type(loader).__name__}, whose samples have no places: train on a DataLoader over a "
                "data set with a length, or wrap the stream in the script"
            )
        if has_own_iterator(loader):
            raise PrunedataError(
                f"its {type(loader).__name__} changes the batches of PyTorch's iterator, which would have ids: let the "
                "collate function change them, as filter_per_worker=True does in PyTorch Geometric"
            )
        if self._leaves_out and self._given is not None and not isinstance(self._given, DataLoader):
            raise PrunedataError(
                f"nothing can be left out: its loader is in a {type(self._given).__name__}: pass it to fit() alone, or "
                "return it alone from train_dataloader(). Without --leave-out it is watched"
            )
        samples = len(loader.dataset)  # type: ignore[arg-type]
        rows: Any = original_rows(loader.dataset)
        if self._pruner is not None and (samples != self._pruner.samples or not np.array_equal(rows, self._rows)):
            raise PrunedataError("the loader is another in a later epoch: select its samples once, or by a seed")
        self._newest = loader
        if self._leaves_out and loader is not self._pruned[0]:
            begins, pruner = self._pruner is None, self._run()
            self._pruned = loader, wrap(loader, pruner, with_ids=True)
            if begins:
                callback = _Unsaved(pruner)
                callback.setup(self._trainer, self._model, "fit")
                self._epochs.added(self._trainer.callbacks, callback)

    def _run(self) -> Pruner:
        """Return the run, which begins with the first samples that are no tuner's."""
        if self._pruner is None:
            trainer, loader = self._trainer, self._newest
            epochs = trainer.max_epochs if trainer.max_epochs and trainer.max_epochs > 0 else LONG
            if trainer.max_steps > 0:
                epochs = min(epochs, ceil(trainer.max_steps * trainer.accumulate_grad_batches / max(1, len(loader))))
            self._rows = original_rows(loader.dataset)
            self._pruner = self._epochs.begin(
                len(loader.dataset), epochs, rank=trainer.global_rank, dataset=loader.dataset, selected=loader.dataset,
                by="delivery",
            )  # fmt: skip
        return self._pruner

    def _open(self) -> None:
        self._run()
        self._epochs.open()

    def _tries(self) -> bool:
        """Whether a tuner of Lightning's trains: it takes all callbacks away, and restores a checkpoint afterwards."""
        return bool(self._callbacks) and not any(one in self._trainer.callbacks for one in self._callbacks)


class _Unsaved(DataPruning):
    """Leaves the script's checkpoints as they are."""

    def state_dict(self) -> dict[str, Any]:
        return {}
