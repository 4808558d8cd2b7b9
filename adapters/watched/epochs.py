"""Record the epochs of a watched run from the steps of a framework's own loop."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from prunedata.adapters.torch.losses import finite
from prunedata.adapters.torch.run import TorchRun
from prunedata.adapters.torch.seeds import drawing_alike
from prunedata.errors import PrunedataError
from prunedata.run.adapter import Delivery
from prunedata.types import Ids, SomeIds

__all__ = ["WatchedEpochs"]


class WatchedEpochs:
    """The epochs of one watched training. An epoch opens with its first losses; after an error recording stops.

    Parameters
    ----------
    session : Session
        The watched runs of this process.

    Attributes
    ----------
    stopped : bool
        Whether recording has stopped.
    none : str
        Why samples were not recorded, if some were not.
    """

    def __init__(self, session: Any) -> None:
        if session.leave_out != "nothing":
            raise PrunedataError("this trainer can only be watched: --leave-out needs a Trainer of transformers")
        if TorchRun.group_size() > 1:
            raise PrunedataError("it trains in several processes")
        self._session, self.stopped, self.none = session, False, ""
        self._run: Any = None
        self._torch: Any = None
        self._delivery = Delivery(-1)
        self._undo: list[Callable[[], None]] = []

    def begin(self, samples: int, epochs: int, *, dataset: Any, rows: Ids | None = None) -> None:
        """Begin a run, as :meth:`Session.begin` does, whose samples are these rows."""
        self._run = self._session.begin(samples, epochs, dataset=dataset)
        self._run.rows = rows
        self._torch = self._run.pruner.attach(TorchRun(self._run.pruner))

    def patch(self, owner: Any, name: str, function: Any) -> None:
        """Replace an object's method until :meth:`close`."""
        setattr(owner, name, function)
        self._undo.append(lambda: vars(owner).pop(name, None))

    def added(self, callbacks: list[Any], callback: Any) -> None:
        """Add a callback to a list until :meth:`close`."""
        callbacks.append(callback)
        self._undo.append(lambda: callbacks.remove(callback) if callback in callbacks else None)

    def guarded(self, do: Callable[[], object]) -> None:
        """Call a function, and stop recording if it raises."""
        if not self.stopped:
            try:
                do()
            except Exception as error:
                self.stopped = True
                self._session.say(f"watched no longer: {error}")

    def record(self, ids: SomeIds, losses: torch.Tensor | None) -> None:
        """Record a batch's losses, shape (n,). Raise :class:`PrunedataError` for None: no loss per sample was found."""
        if losses is None:
            raise PrunedataError("its loss is none that has a loss for each sample")
        pruner = self._run.pruner
        if not pruner.is_open:
            epoch = pruner.begin_epoch()
            self._delivery = Delivery(epoch.number, given=np.zeros(pruner.samples, dtype=np.bool_))
            self._torch.add_delivery(self, self._delivery)
        self._torch.recorder.add(ids, finite(losses, [len(ids)]))
        self._delivery.given[ids] = True  # type: ignore[index]

    def end(self) -> None:
        """End the epoch, if one was opened."""
        if self._run is not None and self._run.pruner.is_open and not self.stopped:
            self._delivery.end()
            self.guarded(self._run.pruner.end_epoch)

    def close(self, complete: bool) -> None:
        """Restore all objects, end the open epoch, and keep previews of the samples."""
        for undo in self._undo:
            undo()
        self.end()
        if self._run is not None:
            if self.none and not self.stopped and not self._run.pruner.history:
                self._session.say(f"nothing was recorded: {self.none}")
            self._run.keep_previews(drawing_alike())
