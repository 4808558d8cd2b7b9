"""Watch a trainer of Ultralytics for ``prunedata watch``, without changing its weights."""

from collections.abc import Callable, Sequence
from os.path import commonpath, dirname, relpath
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from prunedata.adapters.torch.items import Indexed
from prunedata.adapters.torch.seeds import drawing_alike
from prunedata.adapters.watched.captured import Captured
from prunedata.adapters.watched.epochs import WatchedEpochs
from prunedata.adapters.watched.functions import watch_functions
from prunedata.errors import PrunedataError
from prunedata.types import SomeIds

TASKS = ("classify", "detect", "segment")
IDS = "prunedata_ids"  # the key of the ids in a batch, on the way from a worker to ``preprocess_batch``
MIXED = -1  # the id of an image that was made of several
OF_OBJECTS = ("batch_idx", "cls", "bboxes", "keypoints", "obb")
"""The parts of a batch with a row for each object instead of each image."""


def watch(session: Any, trainer: Any, call: Any) -> Callable[[bool], None]:
    """Watch a call of ``trainer.train()``, as :class:`prunedata.cli.watching.session.Watch` describes."""
    if trainer.args.task not in TASKS:
        raise PrunedataError(f"of Ultralytics the tasks {', '.join(TASKS)} are watched. Got {trainer.args.task}")
    if trainer.world_size > 1:
        raise PrunedataError("it trains on several GPUs: with device=0 it is watched")
    epochs = WatchedEpochs(session)
    _Training(epochs, trainer).begin()
    return epochs.close


class _Training:
    """One training. Ids travel in the batches, and are removed before the trainer reads them."""

    def __init__(self, epochs: WatchedEpochs, trainer: Any) -> None:
        self._epochs, self._trainer = epochs, trainer
        self._ids: SomeIds | None = None

    def begin(self) -> None:
        """Hook into the trainer: where it builds a data set, reads a batch, and begins or ends an epoch."""
        trainer, epochs = self._trainer, self._epochs
        own_dataset, own_batch = trainer.build_dataset, trainer.preprocess_batch

        def build_dataset(path: Any, mode: str = "train", *args: Any, **options: Any) -> Any:
            dataset = own_dataset(path, mode, *args, **options)
            return _Images(dataset) if mode == "train" else dataset

        def preprocess_batch(batch: Any) -> Any:
            self._ids = batch.pop(IDS, None)
            return own_batch(batch)

        epochs.patch(trainer, "build_dataset", build_dataset)
        epochs.patch(trainer, "preprocess_batch", preprocess_batch)
        for event, function in (
            ("on_train_start", lambda trainer: epochs.guarded(self._join)),
            ("on_train_epoch_start", lambda trainer: epochs.end()),  # of one that is trained again
            ("on_train_epoch_end", lambda trainer: epochs.end()),
        ):
            epochs.added(trainer.callbacks[event], function)

    def _join(self) -> None:
        """Begin a run over the images, and record the losses of the model, which exists by now."""
        trainer, dataset = self._trainer, self._trainer.train_loader.dataset
        if not isinstance(dataset, _Images):
            raise PrunedataError(f"{type(trainer).__name__} builds data sets in a way of its own")
        model = getattr(trainer.model, "_orig_mod", trainer.model)
        if type(model).loss.__qualname__ != "BaseModel.loss":
            raise PrunedataError(f"the losses of {type(model).__name__} are none of single images")
        shown = _Shown(dataset, trainer.data["names"])
        self._epochs.begin(len(dataset), trainer.epochs - trainer.start_epoch, dataset=shown)
        self._epochs.patch(model, "loss", self._loss_of(model, model.loss))
        self._epochs.undone(watch_functions())

    def _loss_of(self, model: Any, own: Callable[..., Any]) -> Callable[..., Any]:
        """Return the model's loss function, extended to record the losses of the images."""

        def loss(batch: Any, preds: Any = None) -> Any:
            ids, self._ids = self._ids, None
            if ids is None or self._epochs.stopped:
                return own(batch, preds)
            if (ids == MIXED).all():
                self._epochs.none = "each image was made of several, as mosaics are until close_mosaic"
                return own(batch, preds)
            if "batch_idx" not in batch:
                with Captured(len(ids)) as captured:
                    result = own(batch, preds)
                self._epochs.guarded(lambda: self._epochs.record(ids, captured.losses(result[0])))
                return result
            preds = model.forward(batch["img"]) if preds is None else preds
            result = own(batch, preds)
            self._epochs.guarded(lambda: self._record(ids, model.criterion, preds, batch))
            return result

        return loss

    def _record(self, ids: SomeIds, criterion: Any, preds: Any, batch: Any) -> None:
        """Record the loss of each image as a batch of its own, from the predictions that the model has made."""
        own = np.flatnonzero(ids != MIXED)
        with torch.no_grad(), drawing_alike():
            losses = [
                criterion(_image(preds, place), _image_of(batch, place, self._trainer.args.overlap_mask))[0].sum()
                for place in own.tolist()
            ]
            self._epochs.record(ids[own], torch.stack(losses))


def _image(part: Any, place: int) -> Any:
    """Return the part of a model's output that belongs to one image of a batch."""
    if isinstance(part, torch.Tensor):
        return part[place : place + 1]
    if isinstance(part, dict):
        return {name: _image(each, place) for name, each in part.items()}
    return type(part)(_image(each, place) for each in part) if isinstance(part, list | tuple) else part


def _image_of(batch: Any, place: int, overlap: bool) -> dict[str, Any]:
    """Return the labels of one image as a batch of its own. Without ``overlap`` each object has a mask."""
    mine = batch["batch_idx"] == place
    of_objects = OF_OBJECTS if overlap else (*OF_OBJECTS, "masks")
    found = {
        name: value[mine] if name in of_objects else _image(value, place)
        for name, value in batch.items()
        if isinstance(value, torch.Tensor)
    }
    return found | {"batch_idx": torch.zeros_like(found["batch_idx"])}


class _Images(Indexed):
    """A data set of Ultralytics whose batches have the ids of their images."""

    def __getitems__(self, indices: list[int]) -> tuple[SomeIds, Any]:
        ids, images = [], []
        for index in indices:
            image, reads = self._counted(index)
            ids.append(MIXED if reads > 1 else index)
            images.append(image)
        return np.array(ids, dtype=np.int64), images

    def _counted(self, index: int) -> tuple[Any, int]:
        """Return an image, and how many were read for it: mosaics and mixtures read others."""
        own, reads = getattr(self._indexed, "get_image_and_label", None), []
        if own is None:
            return self._indexed[index], 1

        def get_image_and_label(index: int) -> Any:
            reads.append(index)
            return own(index)

        vars(self._indexed)["get_image_and_label"] = get_image_and_label
        try:
            return self._indexed[index], len(reads)
        finally:
            del vars(self._indexed)["get_image_and_label"]

    def collate_fn(self, fetched: tuple[SomeIds, Any]) -> Any:
        """Collate images as the data set does; the loader looks for this name."""
        ids, images = fetched
        return getattr(self._indexed, "collate_fn", default_collate)(images) | {IDS: ids}


class _Shown(Sequence[Any]):
    """The images for previews, with file names, and the names and boxes of their labels."""

    def __init__(self, dataset: Any, names: Any) -> None:
        self._names, self._labels = names, list[tuple[Any, Any]]()
        if hasattr(dataset, "im_files"):
            self._files = list(dataset.im_files)
            self._labels += [(np.ravel(one["cls"]).astype(int), one["bboxes"]) for one in dataset.labels]
        else:
            self._files = [one[0] for one in dataset.samples]
            self._labels += [([one[1]], ()) for one in dataset.samples]
        self._folder = commonpath(map(dirname, self._files))

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, sample: Any) -> Any:
        from PIL import Image, ImageDraw  # noqa: PLC0415 (comes with Ultralytics)

        classes, boxes = self._labels[sample]
        image = Image.open(self._files[sample]).convert("RGB")
        draw, (wide, high) = ImageDraw.Draw(image), image.size
        for x, y, width, height in boxes:
            corners = (x - width / 2) * wide, (y - height / 2) * high, (x + width / 2) * wide, (y + height / 2) * high
            draw.rectangle(corners, outline=(255, 0, 0), width=max(1, max(image.size) // 200))
        named = ", ".join(str(self._names[one]) for one in classes)
        return {"path": relpath(self._files[sample], self._folder), "image": image, "label": named or "nothing"}
