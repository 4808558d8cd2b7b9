"""Watch a fastai Learner for ``prunedata watch``, without changing its weights."""

from collections.abc import Callable, Sequence
from os.path import commonpath
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import torch

from prunedata.adapters.watched.epochs import WatchedEpochs
from prunedata.errors import PrunedataError


def watch(session: Any, learn: Any, call: Any) -> Callable[[bool], None]:
    """Watch a call of ``learn.fit()``, as :class:`prunedata.cli.watching.session.Watch` describes."""
    given = call.bound()
    callbacks = [*learn.cbs, *(given["cbs"] if hasattr(type(given["cbs"]), "__iter__") else [given["cbs"]])]
    names = {kind.__name__ for each in callbacks for kind in (each if isinstance(each, type) else type(each)).__mro__}
    if "LRFinder" in names:
        raise PrunedataError("lr_find() forgets what it trains")
    if "MixHandler" in names:
        raise PrunedataError("it trains on samples that are made of two")
    loader = learn.dls.train
    if not hasattr(loader, "get_idxs") or not loader.bs or loader.n is None or loader.n != len(loader.dataset):
        raise PrunedataError(f"it trains on a {type(loader).__name__}, whose samples have no places")
    epochs = WatchedEpochs(session)
    shown = _Shown(learn.dls)
    epochs.begin(len(shown), given["n_epoch"] - given["start_epoch"], dataset=shown, rows=shown.rows)
    _Fit(epochs, learn).begin()
    return epochs.close


class _Fit:
    """One ``fit``, with the order in which its loader reads the samples of an epoch."""

    def __init__(self, epochs: WatchedEpochs, learn: Any) -> None:
        self._epochs, self._learn = epochs, learn
        self._order = np.zeros(0, dtype=np.int64)

    def begin(self) -> None:
        """Hook into the learner: into each epoch, and each of its batches."""
        learn, epochs = self._learn, self._epochs
        own_batches, own_batch = learn.all_batches, learn._do_one_batch

        def all_batches() -> None:
            if learn.dl is not learn.dls.train or epochs.stopped:
                own_batches()
                return
            self._listen(learn.dl)
            try:
                own_batches()
            finally:
                vars(learn.dl).pop("get_idxs", None)
                epochs.end()

        def do_one_batch() -> None:
            before = getattr(learn, "loss_grad", None)
            try:
                own_batch()
            finally:  # a callback may have canceled the rest of it, as GradientAccumulation does
                if learn.training and learn.dl is learn.dls.train and getattr(learn, "loss_grad", None) is not before:
                    epochs.guarded(self._record)

        epochs.patch(learn, "all_batches", all_batches)
        epochs.patch(learn, "_do_one_batch", do_one_batch)

    def _listen(self, loader: Any) -> None:
        """Keep the order of the samples when the loader computes it."""
        own = loader.get_idxs

        def get_idxs(loader: Any) -> Any:
            vars(loader).pop("get_idxs", None)
            order = own()
            self._order = np.fromiter(order, dtype=np.int64)
            return order

        loader.get_idxs = MethodType(get_idxs, loader)  # a method, which loader.new() does not copy

    def _record(self) -> None:
        """Record the loss of each sample of the batch."""
        learn = self._learn
        ids = self._order[learn.iter * learn.dl.bs :][: learn.dl.bs]
        if len(ids) != len(learn.yb[0]):
            raise PrunedataError("its loader skips some of the samples that it was to read")
        with torch.no_grad(), learn.loss_not_reduced():
            losses = learn.loss_func(learn.pred, *learn.yb)
        if not losses.ndim or (len(losses) != len(ids) and losses.numel() != learn.yb[0].numel()):  # or is flattened
            raise PrunedataError("its loss function has none for each sample with reduction='none'")
        self._epochs.record(ids, torch.as_tensor(losses).float().reshape(len(ids), -1).mean(1))


class _Shown(Sequence[Any]):
    """A Learner's samples for previews: files, rows and texts, with the names of their classes.

    ``rows``, shape (samples,), are those of the split DataFrame, by its index; None without one.
    """

    def __init__(self, loaders: Any) -> None:
        self._dataset = loaders.train.dataset
        items = getattr(self._dataset, "items", None)
        self._frame = items if hasattr(items, "iloc") else None
        index = None if self._frame is None else self._frame.index.to_numpy()
        self.rows = index if index is not None and index.dtype.kind == "i" and len(set(index)) == len(index) else None
        files = [] if items is None or self._frame is not None else list(items)
        self._files: list[Path] = files if all(isinstance(each, Path) for each in files) else []
        self._folder = commonpath([each.parent for each in self._files]) if self._files else ""
        names = list(getattr(loaders, "vocab", None) or ())
        if names and hasattr(names[-1], "__len__") and not isinstance(names[-1], str):
            names = list(names[-1])  # the first are the words of the texts
        self.classes = [str(each) for each in names]

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, sample: Any) -> Any:
        if self._frame is not None:
            row = self._frame.iloc[sample]
            row = self._dataset.decode_row(row) if hasattr(self._dataset, "decode_row") else row
            target = list(getattr(self._dataset, "y_names", ()))
            return {"label" if [name] == target else str(name): value for name, value in row.items()}
        item = self._dataset[sample]
        if not self._files or not isinstance(item, tuple):
            return item
        label: Any = item[1] if len(item) > 1 else None
        known = getattr(label, "ndim", 1) == 0 and 0 <= int(label) < len(self.classes)
        named = self.classes[int(label)] if known else label
        return {"path": str(self._files[sample].relative_to(self._folder)), "image": item[0], "label": named}
