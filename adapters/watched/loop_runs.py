"""The loaders of watched loops, whose batches carry ids, and the runs over them: one for each data set."""

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, Subset, get_worker_info

from prunedata.adapters.torch.items import Collate, Indexed, has_own_iterator
from prunedata.adapters.torch.loader import PrunedLoader
from prunedata.adapters.torch.prints import prints_in, some_in
from prunedata.adapters.watched.captured import OF_LABELS
from prunedata.adapters.watched.epochs import LONG, WatchedEpochs
from prunedata.adapters.watched.gathered import epochs_of
from prunedata.adapters.watched.loop_batches import LoaderPass
from prunedata.adapters.watched.shown import Shown
from prunedata.errors import PrunedataError
from prunedata.run.frameworks import labels_in
from prunedata.run.rows import original_rows, selected_by
from prunedata.types import Ids

__all__ = ["LoopRuns", "has_ids", "with_ids"]

RUNS = 20
"""So many runs begin in a process: a fold or a size has one, but so has each batch of what a policy has tried."""


class _Placed(Indexed):
    """The data set of a loop's loader. Those of pruned loaders, and of trainers, are other ones."""


def with_ids(loader: DataLoader[Any], own: Callable[[Any], Any]) -> Any:
    """Call a method of a loader. An iterator that it makes yields the batches with the ids of their samples.

    Those of a loader whose samples have no places stay as they are.
    """
    attributes = vars(loader)  # DataLoader's __setattr__ refuses them
    before: dict[str, Any] = {name: attributes[name] for name in ("dataset", "collate_fn") if name in attributes}
    if len(before) < 2 or not _has_places(loader):
        return own(loader)
    attributes["dataset"] = _Placed(loader.dataset)
    attributes["collate_fn"] = Collate(loader.collate_fn, tells=True)
    try:
        return own(loader)
    finally:
        attributes.update(before)


def has_ids(batches: Any) -> bool:
    """Whether the iterator of a loader yields ids with its batches."""
    return type(getattr(batches, "_dataset", None)) is _Placed


def _has_places(loader: Any) -> bool:
    """Whether a loader's samples have places in its data set, and no adapter made it: to prune, or to compare data."""
    if isinstance(loader, PrunedLoader) or isinstance(loader.dataset, IterableDataset | Indexed):
        return False
    if get_worker_info() is not None or has_own_iterator(loader):
        return False
    try:
        return len(loader.dataset) > 0
    except TypeError:
        return False


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
        self._known: list[tuple[DataLoader[Any], Ids | None]] = []
        """A loader of each run and the rows of its data as the run began, newest last."""

    def see_target(self, own: Callable[..., Any], target: Any) -> None:
        """A batch is trained on by a loss function with this target."""
        if len(self._labels) < 2:
            self._labels |= _extremes(target) if own.__name__ in OF_LABELS else {0, 1}

    def has_other_data(self, which: LoaderPass) -> bool:
        """Whether a pass is over other data than those of the present run."""
        if which.is_other is None:
            which.is_other = not _are_alike(which.loader, *self._known[-1])
        return which.is_other

    def epochs_of(self, which: LoaderPass) -> WatchedEpochs:
        """Return the epochs of the run that a pass belongs to. One over other data begins another run."""
        before = self.last_pass
        if self.epochs is not None and which is before:
            return self.epochs
        loader = which.loader
        same = bool(self._known) and _are_alike(loader, *self._known[-1])
        returns = not same and any(_are_alike(loader, *each) for each in self._known)
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
            if len(self._known) == RUNS:
                raise PrunedataError(f"it trains on other data again and again, of which {RUNS} runs are recorded")
            self.end()
            dataset: Any = loader.dataset
            if self._session.settings.leave_out:
                raise PrunedataError(
                    "a loop of your own leaves samples out by pruner.wrap(loader), in the script: without --leave-out "
                    "it is watched"
                )
            self.epochs = epochs_of(self._session, loader)
            tokenizer = getattr(loader.collate_fn, "tokenizer", None)
            shown = _as_it_is(dataset) if tokenizer is None else Shown(_as_it_is(dataset), tokenizer)
            self.epochs.begin(len(dataset), LONG, dataset=shown, selected=dataset)
            self._known.append((loader, original_rows(dataset)))
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


def _as_it_is(dataset: Any) -> Any:
    """Return a data set to show samples of later: of a ``Subset``, which may select others by then, a copy."""
    selected = selected_by(dataset) if isinstance(dataset, Subset) else None
    if selected is None:
        return dataset
    like = copy(dataset)
    like.indices = selected.tolist()
    return like


def _are_alike(one: DataLoader[Any], other: DataLoader[Any], rows: Ids | None) -> bool:
    """Whether two loaders have the same data, which may have been made anew; ``rows`` are those of the other's."""
    ours, theirs = one.dataset, other.dataset
    if not np.array_equal(original_rows(ours), rows):  # type: ignore[arg-type]  # None, too
        return False
    if ours is theirs:
        return True
    if type(ours) is not type(theirs) or len(ours) != len(theirs):  # type: ignore[arg-type]
        return False
    labels: Any = labels_in(ours), labels_in(theirs)
    if labels[0] is not None and labels[1] is not None:
        return bool(np.array_equal(*labels))
    prints = [prints_in(each.dataset, each.num_workers, each)(some_in(ours)) for each in (one, other)]
    return prints[0] == prints[1] and None not in prints[0]
