"""Record the epochs of a watched run from the steps of a framework's own loop."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from prunedata.adapters.torch.items import SORTS
from prunedata.adapters.torch.losses import Later
from prunedata.adapters.torch.ranks import gather_numbers
from prunedata.adapters.torch.run import TorchRun
from prunedata.adapters.torch.seeds import drawing_alike
from prunedata.adapters.watched.captured import Captured, Lacking
from prunedata.errors import LossError, PrunedataError
from prunedata.run.adapter import Delivery
from prunedata.run.pruner import Pruner
from prunedata.types import Ids, SomeIds

LONG = 1000
"""The epochs of a run until it ends, where the training does not say how many it has."""
LOOKS, MOVED = 8, 3
"""In so many batches a run looks whether its steps keep the order of the samples. In so many of these it must be
another: labels may be equal by chance, and a network may learn others than those of the batch."""

PLACELESS = (
    "its sampler asks for samples by something else than their positions in the data set, from 0, so that which losses "
    "belong to which sample is unknown"
)


def check_ids(ids: SomeIds) -> None:
    """Raise :class:`PrunedataError` if the ids of a watched batch were taken out, or are no places.

    Only the first is looked at, as this is done in each step; see :func:`check_places`.
    """
    if not len(ids):
        raise PrunedataError(SORTS)
    if ids[0] < 0:
        raise PrunedataError(PLACELESS)


def check_places(ids: SomeIds, samples: int) -> None:
    """Raise :class:`PrunedataError` if some ids, such as those of many watched batches, are none of so many samples."""
    if len(ids) and not 0 <= ids.min() <= ids.max() < samples:
        raise PrunedataError(PLACELESS)


class WatchedEpochs:
    """The epochs of one watched training. An epoch opens with its first losses; after an error recording stops.

    ``leaves_out``: whether the trainer can leave samples out, where the user asked for it. ``ranks``: whether the
    processes that train together can make one run. Then all of them call :meth:`agree`, :meth:`open`, :meth:`end` and
    :meth:`close` at the same steps. ``none`` is why samples were not recorded, if some were not.
    """

    def __init__(self, session: Any, *, leaves_out: bool = False, ranks: bool = False) -> None:
        if session.settings.leave_out and not leaves_out:
            raise PrunedataError(
                "this trainer cannot leave samples out: without --leave-out it is watched; to leave them out, train "
                "without the samples that it lists"
            )
        if self._together() and not ranks:
            raise PrunedataError("it trains in several processes: start it in one, and it is watched")
        self._session, self.stopped, self.none = session, False, ""
        self._run: Any = None
        self._torch: Any = None
        self._opened = False
        self._delivery = Delivery(-1)
        self._later = Later(self._take)
        self._lacking = Lacking()
        self._looks, self._moved = LOOKS, 0
        """Batches that will be looked at, and how many had their labels in another order."""
        self._undo: list[Callable[[], None]] = []

    def begin(self, samples: int, epochs: int, *, rows: Ids | None = None, **options: Any) -> Pruner:
        """Begin a run, as :meth:`Session.begin` does with these options, whose samples are these rows."""
        self._run = self._session.begin(samples, epochs, **options)
        self._run.rows = self._run.rows if rows is None else rows
        pruner: Pruner = self._run.pruner
        self._torch = pruner.attach(TorchRun(pruner))
        return pruner

    def patch(self, owner: Any, name: str, function: Any) -> None:
        """Replace an object's method until :meth:`close`."""
        before = vars(owner).get(name)  # one that the user has replaced
        setattr(owner, name, function)
        self._undo.append(lambda: vars(owner).pop(name, None) if before is None else setattr(owner, name, before))

    def undone(self, undo: Callable[[], None]) -> None:
        """Call this function in :meth:`close`."""
        self._undo.append(undo)

    def added(self, callbacks: list[Any], callback: Any) -> None:
        """Add a callback to a list until :meth:`close`."""
        callbacks.append(callback)
        self._undo.append(lambda: callbacks.remove(callback) if callback in callbacks else None)

    def stop(self, error: Exception) -> None:
        """Stop recording."""
        if not self.stopped:
            self.stopped = True
            self._session.say(f"watched no longer: {error}")

    def guarded(self, do: Callable[[], object]) -> None:
        """Call a function, and stop recording if it raises."""
        if not self.stopped:
            try:
                do()
            except Exception as error:
                self.stop(error)

    def agree(self, why: str) -> None:
        """Stop recording in all processes if it has stopped in one, as the others would wait for it."""
        if self._together() and gather_numbers([self.stopped]).any():
            self.stop(PrunedataError(why))

    def open(self) -> None:
        """Open an epoch, if none is open."""
        if self._opened:
            return
        self._opened, pruner = True, self._run.pruner
        self._torch.join()
        self._delivery = Delivery(self._begin_epoch(), given=np.zeros(pruner.samples, dtype=np.bool_))
        self._torch.add_delivery(self, self._delivery)

    def _begin_epoch(self) -> int:
        """Begin the next epoch of the run, and return its number."""
        pruner: Pruner = self._run.pruner
        if pruner.next_epoch == pruner.schedule.epochs:
            raise PrunedataError(f"its first {pruner.next_epoch:,} epochs are recorded, which is enough")
        return pruner.begin_epoch().number

    def record(self, ids: SomeIds, losses: torch.Tensor | None) -> None:
        """Record a batch's losses, shape (n,). Raise :class:`PrunedataError` for None: no loss per sample was found."""
        if losses is None:
            raise PrunedataError(
                "its step calls no loss function of PyTorch's that compares outputs with targets, and has a loss for "
                f"each of the {len(ids)} samples of its batch: a collate function may leave out None alone"
            )
        self.open()
        self._take(ids, losses, None, None, [len(ids)])

    def record_captured(self, ids: SomeIds, captured: Captured, returned: Any) -> None:
        """Record a batch's losses from those of a step that returned this loss; many batches together if possible."""
        later = captured.later(returned)
        if later is None:
            self.record(ids, self.losses_in(captured, returned)[0])
        else:
            self._check_order(captured, returned)
            self.record_later(ids, later[1], later[0])

    def losses_in(
        self, captured: Captured, returned: Any
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """Return what :meth:`Captured.at_once` does; say it once if some loss function of the steps is left out."""
        self._check_order(captured, returned)
        parts = captured.at_once(returned, self._lacking)
        if self._lacking and parts[0] is not None:
            names = ", ".join(sorted({name for _, name in self._lacking}))
            self._session.say(f"the losses do not include {names}: in its step there is none for each sample")
        return parts

    def _check_order(self, captured: Captured, returned: Any) -> None:
        """Raise if the step changes the order of its samples, which the labels of its first batches show."""
        if not self._looks:
            return
        self._looks -= 1
        keeps = captured.keeps_order(returned)
        if keeps is None:  # of other targets, which may have equal numbers by chance
            self._looks = 0
        elif not keeps:
            self._moved += 1
        if self._moved == MOVED:
            raise PrunedataError(
                "its step changes the order of the samples, as by their lengths, so which loss belongs to which sample "
                "is unknown: let outputs and labels keep the order of the batch"
            )

    def record_later(
        self, ids: SomeIds, parts: tuple[Any, ...], losses_of: Callable[..., Any], *, ends: bool = True
    ) -> None:
        """Record the losses of a batch when there are many, as :meth:`Later.add` takes what they are made of."""
        self.open()
        self._later.add(ids, parts, losses_of, ends=ends)

    def _take(self, ids: SomeIds, losses: torch.Tensor, logits: Any, labels: Any, sizes: list[int]) -> None:
        check_places(ids, self._run.pruner.samples)
        if logits is not None and not self._fits(logits.shape[1]):
            logits = labels = None
        with self._run.pruner.overhead:
            self._see_labels(ids, labels)
            self._torch.recorder.add(ids, losses, logits, sizes)
            self._delivery.given[ids] = True  # type: ignore[index]

    def _fits(self, classes: int) -> bool:
        """Whether logits are of as many classes as before, and of those that the labels of the data set are of.

        They may be those of another head, and the labels that are trained on may be others, as where -1 is none.
        """
        try:
            self._run.pruner.expect_classes(classes)
        except LossError:
            return False
        return True

    def _see_labels(self, ids: SomeIds, labels: Any) -> None:
        """Let the run keep the labels of batches, until it knows all: right ones of a rare class would look wrong."""
        if labels is not None and self._run.pruner.wants_labels:
            self._run.pruner.see_labels(ids, labels)

    def pause(self) -> None:
        """Stop the clock after the last batch: what follows in the epoch is no training."""
        self._later.flush()
        if self._delivery.ended is None:
            self._delivery.end()

    def end(self) -> None:
        """End the epoch, if one was opened."""
        if self._opened:
            self._opened = False
            self.guarded(self.pause)
            self._meet()
            self.guarded(self._run.pruner.end_epoch)

    def _meet(self) -> None:
        """Meet the other processes, if there are any, as an epoch ends."""
        self.agree("another process stopped")

    def close(self, complete: bool) -> None:
        """Restore all objects, end the open epoch, and keep previews of the samples."""
        for undo in reversed(self._undo):
            undo()
        if complete or not self._together():
            self.end()
        if self._run is not None:
            if self.none and not self.stopped and not self._run.pruner.visits.any():
                self._session.say(f"nothing was recorded: {self.none}")
            if complete:
                self._run.pruner.shorten()
            self._run.keep_previews(drawing_alike())

    @staticmethod
    def _together() -> bool:
        return TorchRun.group_size() > 1
