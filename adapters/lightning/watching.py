"""Watch a Lightning Trainer in the user's script, for ``prunedata watch``, without changing its weights."""

from collections.abc import Callable
from math import ceil
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from prunedata.adapters.lightning.framework import BaseCallback
from prunedata.adapters.torch.captured import Captured, capturing
from prunedata.adapters.torch.items import Collate, Indexed
from prunedata.adapters.torch.loader import PrunedLoader
from prunedata.adapters.torch.losses import Later, finite
from prunedata.adapters.torch.ranks import gather_numbers
from prunedata.adapters.torch.run import TorchRun
from prunedata.adapters.torch.seeds import drawing_alike
from prunedata.errors import PrunedataError
from prunedata.run.adapter import Delivery
from prunedata.run.frameworks import ADAPTERS
from prunedata.types import SomeIds

__all__ = ["watch"]

LONG = 1000
"""Epochs of a run of which nobody says how long it is."""


def watch(session: Any, trainer: Any, call: Any) -> Callable[[bool], None]:
    """Watch a call of ``trainer.fit()``, as :class:`prunedata.cli.watching.session.Watch` describes."""
    if any(type(one).__module__.startswith(ADAPTERS) for one in trainer.callbacks if isinstance(one, BaseCallback)):
        raise PrunedataError("the script prunes by itself")
    if trainer.fast_dev_run:
        raise PrunedataError("fast_dev_run trains nothing")
    if "MultiProcessing" in type(trainer.strategy.launcher).__name__:
        raise PrunedataError("its processes are copies of this one; those of strategy='ddp' can be watched")
    if session.leave_out != "nothing":
        raise PrunedataError("Lightning leaves out by DataPruning alone, in the script")
    fit = _Fit(session, trainer, call.bound()["model"])
    fit.begin()
    return fit.end


class _Fit:
    """One ``fit`` that is watched. Where that fails it goes on unwatched."""

    def __init__(self, session: Any, trainer: Any, model: Any) -> None:
        self._session, self._trainer = session, trainer
        self._model = getattr(model, "_orig_mod", model)
        self._run: Any = None
        self._torch: Any = None
        self._stopped = self._with_ids = False
        self._ids: SomeIds | None = None
        self._number = -1
        self._delivery = Delivery(-1)
        self._later = Later(self._take)
        self._patched: list[tuple[Any, str]] = []

    def begin(self) -> None:
        """Let the trainer call us: where it takes a loader, a batch, and a step."""
        trainer, strategy = self._trainer, self._trainer.strategy
        own_loader, own_step = strategy.process_dataloader, strategy.training_step
        own_setup, own_batch = trainer.fit_loop.setup_data, self._model._on_before_batch_transfer
        sets_up: list[bool] = []

        def setup_data() -> None:
            sets_up.append(True)
            try:
                own_setup()
            finally:
                sets_up.pop()

        def process_dataloader(loader: Any) -> Any:
            loader = own_loader(loader)
            return self._loader(loader) if sets_up else loader

        def take_batch(batch: Any, dataloader_idx: int = 0) -> Any:
            if self._with_ids and trainer.training:
                self._ids, batch = batch
            return own_batch(batch, dataloader_idx)

        def training_step(*args: Any, **options: Any) -> Any:
            ids, self._ids = self._ids, None
            if self._stopped or ids is None:
                return own_step(*args, **options)
            with capturing() as captured:
                result = own_step(*args, **options)
            self._guarded(lambda: self._record(ids, captured, result))
            return result

        for owner, function in (
            (strategy, process_dataloader),
            (strategy, training_step),
            (trainer.fit_loop, setup_data),
        ):
            self._patch(owner, function.__name__, function)
        self._patch(self._model, "_on_before_batch_transfer", take_batch)

    def _patch(self, owner: Any, name: str, function: Any) -> None:
        setattr(owner, name, function)
        self._patched.append((owner, name))

    def end(self, complete: bool) -> None:
        """Restore the trainer, and store the run."""
        for owner, name in self._patched:
            vars(owner).pop(name, None)
        if self._run is None:
            return
        if complete or self._trainer.world_size == 1:
            self._close()
        self._run.keep_previews(drawing_alike())

    def _stop(self, error: Exception) -> None:
        if not self._stopped:
            self._stopped = True
            self._session.say(f"watched no longer: {error}")

    def _guarded(self, do: Callable[[], None]) -> None:
        try:
            do()
        except Exception as error:
            self._stop(error)

    # -- the loader

    def _loader(self, loader: Any) -> Any:
        """The loader to train on, whose batches have ids; the given one if it cannot be watched."""
        if self._run is None and not self._stopped:
            self._guarded(lambda: self._join(loader))
            if self._trainer.world_size > 1 and gather_numbers([self._stopped]).any():
                self._stop(PrunedataError("another process cannot be watched"))
        elif self._run is not None and len(getattr(loader, "dataset", ())) != self._run.pruner.samples:
            self._stop(PrunedataError("the loader is another in a later epoch"))
        self._with_ids = not self._stopped
        if self._stopped:
            return loader
        like: Any = object.__new__(type(loader))
        replaced = {"dataset": Indexed(loader.dataset), "collate_fn": Collate(loader.collate_fn)}
        # The last two attributes are StatefulDataLoader's, which reads them when it is iterated.
        replaced |= {"_iterator": None, "_initial_iter_for_state_dict": False, "next_iter_state": None}
        vars(like).update(vars(loader) | replaced)
        return like

    def _join(self, loader: Any) -> None:
        """Begin a run over the samples of a loader."""
        if self._with_ids:
            raise PrunedataError("it trains on several loaders at once")
        if isinstance(loader, PrunedLoader):
            raise PrunedataError("the script prunes by itself")
        if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
            raise PrunedataError(f"it trains on {type(loader).__name__}, whose samples have no places")
        trainer, dataset = self._trainer, loader.dataset
        epochs = trainer.max_epochs if trainer.max_epochs and trainer.max_epochs > 0 else LONG
        if trainer.max_steps > 0:
            epochs = min(epochs, ceil(trainer.max_steps * trainer.accumulate_grad_batches / max(1, len(loader))))
        self._run = self._session.begin(
            len(dataset),  # type: ignore[arg-type]
            epochs,
            rank=trainer.global_rank,
            dataset=dataset,
            selected=dataset,
        )
        self._torch = self._run.pruner.attach(TorchRun(self._run.pruner))
        self._torch.joins_batches = True  # each process has its own

    # -- the batches

    def _record(self, ids: SomeIds, captured: Captured, result: Any) -> None:
        """Record the losses of a training step, in the epoch that it is in."""
        returned = result.get("loss") if isinstance(result, dict) else result
        if self._trainer.current_epoch != self._number:
            self._open()
        later = captured.later(returned, len(ids))
        if later is not None:
            self._later.add(ids, later[1], later[0])
        else:
            losses = captured.losses(returned, len(ids))
            if losses is None:
                raise PrunedataError(
                    f"training_step of {type(self._model).__name__} calls no loss function of PyTorch's that has a "
                    "loss for each sample"
                )
            self._take(ids, finite(losses, [len(ids)]), None, [len(ids)])
        if self._trainer.is_last_batch:
            self._later.flush()
            self._delivery.end()

    def _take(self, ids: SomeIds, losses: torch.Tensor, logits: None, sizes: list[int]) -> None:
        """Record batches."""
        with self._run.pruner.charge:
            self._torch.recorder.add(ids, losses, logits, sizes)
            self._delivery.given[ids] = True  # type: ignore[index]

    def _open(self) -> None:
        """Begin an epoch; the one before it has ended."""
        self._close()
        pruner = self._run.pruner
        self._torch.join()
        self._number = self._trainer.current_epoch
        epoch = pruner.begin_epoch()
        self._delivery = Delivery(epoch.number, given=np.zeros(pruner.samples, dtype=np.bool_))
        self._torch.add_delivery(self, self._delivery)

    def _close(self) -> None:
        """End the epoch that is open, with what came of it; where one process failed, none goes on."""
        if self._number < 0:
            return
        self._guarded(self._later.flush)
        if self._trainer.world_size > 1 and gather_numbers([self._stopped]).any():
            self._stop(PrunedataError("another process stopped"))
        if not self._stopped and self._run.pruner.is_open:
            if self._delivery.ended is None:
                self._delivery.end()
            self._guarded(self._run.pruner.end_epoch)
