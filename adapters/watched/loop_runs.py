"""The runs of watched loops over loaders: one for each data set, whose epochs are passes over it."""

from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader

from prunedata.adapters.watched.captured import OF_LABELS
from prunedata.adapters.watched.epochs import LONG, WatchedEpochs
from prunedata.adapters.watched.gathered import epochs_of
from prunedata.adapters.watched.loop_batches import LoaderPass
from prunedata.adapters.watched.loop_loaders import are_alike
from prunedata.adapters.watched.shown import Shown
from prunedata.errors import PrunedataError

__all__ = ["LoopRuns"]


class LoopRuns:
    """The runs of a process, one after the other. ``stop(why)`` is called where they can go on no longer."""

    def __init__(self, session: Any, stop: Callable[[str], None]) -> None:
        self._session, self._stop = session, stop
        self.missed = 0
        """How many batches of the run were trained with targets that no batch has, and are not recorded."""
        self._labels = set[float]()
        """Labels of the run's batches, until there are two."""
        self.epochs: WatchedEpochs | None = None
        """Those of the present run."""
        self.last_pass: LoaderPass | None = None
        """The pass whose batches were trained last."""
        self._alone = 0
        """The passes of the open epoch, if each was left after its first batch."""
        self._known: list[DataLoader[Any]] = []
        """A loader of each run, newest last."""

    def see_target(self, own: Callable[..., Any], target: Any) -> None:
        """A batch is trained on by a loss function with this target."""
        if len(self._labels) < 2:
            self._labels |= _extremes(target) if own.__name__ in OF_LABELS else {0, 1}

    def has_other_data(self, which: LoaderPass) -> bool:
        """Whether a pass is over other data than those of the present run."""
        if which.is_other is None:
            which.is_other = not are_alike(which.loader, self._known[-1])
        return which.is_other

    def epochs_of(self, which: LoaderPass) -> WatchedEpochs:
        """Return the epochs of the run that a pass belongs to. One over other data begins another run."""
        before = self.last_pass
        if self.epochs is not None and which is before:
            return self.epochs
        loader = which.loader
        same = bool(self._known) and are_alike(loader, self._known[-1])
        returns = not same and any(are_alike(loader, each) for each in self._known)
        if which.is_left or returns or not (before is None or same or before.is_over):
            raise PrunedataError("it trains on several loaders in turn")
        if before is not None:
            before.is_left = True
            # A loop that takes one batch of each pass, as next(iter(loader)) does, has no passes to tell epochs by.
            self._alone = self._alone + 1 if same and before.batches == 1 and not before.is_over else 0
            if not self._alone or self._alone >= before.length:
                self._alone = 0
                self.end_epoch()
        if self.epochs is None or not same:
            self.end()
            dataset: Any = loader.dataset
            if self._session.settings.leave_out:
                raise PrunedataError(
                    "a loop of your own leaves samples out by pruner.wrap(loader), in the script: without --leave-out "
                    "it is watched"
                )
            self.epochs = epochs_of(self._session, loader)
            tokenizer = getattr(loader.collate_fn, "tokenizer", None)
            shown = dataset if tokenizer is None else Shown(dataset, tokenizer)
            self.epochs.begin(len(dataset), LONG, dataset=shown, selected=dataset)
            self._known.append(loader)
        self.last_pass = which
        return self.epochs

    def end_epoch(self) -> None:
        """End the epoch that is open, if one is."""
        if self.last_pass is not None and self.epochs is not None:
            self.last_pass.is_left = True
            self._check_labels()
            self.epochs.end()

    def _check_labels(self) -> None:
        """Stop if all targets are one label, as those of a contrastive loss, or of what tells real from made."""
        if len(self._labels) == 1:
            self._stop("all targets of its loss are the same, and say nothing of single samples")

    def end(self) -> None:
        """End the present run, if there is one."""
        if self.epochs is not None:
            self._check_labels()
            if self.missed and not self.epochs.stopped:
                why = "their loss has targets of none of the newest batches"
                self._session.say(f"{self.missed:,} batches that were trained are not recorded: {why}")
            epochs, self.epochs, self.missed = self.epochs, None, 0
            self._labels.clear()
            epochs.close(True)


def _extremes(target: Any) -> set[float]:
    """Return the least and the greatest number of a target."""
    return {each.item() for each in target.detach().aminmax()} if target.numel() else set()
