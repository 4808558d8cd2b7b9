"""Find the adapter of an object, which has the name of its library; and the labels and names of a data set."""

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from prunedata.errors import PrunedataError
from prunedata.run.labels import MOST_NAMES
from prunedata.run.rows import selected_by
from prunedata.types import Array, Ids

ADAPTERS = "prunedata.adapters"
OTHER_NAMES = {"transformers": "huggingface", "pytorch_lightning": "lightning"}
"""Libraries whose adapter has another name."""


def adapter_of(given: Any) -> tuple[str, Any]:
    """Return the name and the module of the adapter for an object, by its class and bases; else that for iterables.

    Raises :class:`PrunedataError` if the adapter's library is not installed.
    """
    kinds = (*type(given).__mro__, *given.__class__.__mro__)  # accelerate's loaders claim the class of another
    roots = dict.fromkeys(kind.__module__.partition(".")[0] for kind in kinds)
    for root in roots:
        name = OTHER_NAMES.get(root, root)
        if name != "builtins" and name.isidentifier():
            try:
                adapter = import_module(f"{ADAPTERS}.{name}")
            except ImportError as error:
                if error.name != f"{ADAPTERS}.{name}":
                    raise PrunedataError(str(error)) from error
                continue
            if not isinstance(given, getattr(adapter, "ELSEWHERE", ())):
                return name, adapter
    return "iterable", import_module(f"{ADAPTERS}.iterable")


def samples_in(given: Any, *arguments: Any, **options: Any) -> int | None:
    """Return how many samples an object has: by its adapter's ``samples_in``, or else its length; None if unknown.

    The other arguments are those of the adapter's ``wrap``, such as a ``ShardIndex``.
    """
    _, adapter = adapter_of(given)
    if hasattr(adapter, "samples_in"):
        found = adapter.samples_in(given, *arguments, **options)
        return None if found is None else int(found)
    try:
        return len(given)
    except (TypeError, NotImplementedError):
        return None


def labels_in(given: Any, column: str | None = None, *, classes: int | None = None) -> Array | None:
    """Return the labels of a data set, or of the data set of a loader or a trainer; None if there are none.

    ``column`` is one of its ``column_names`` or ``columns``, or an attribute; :class:`PrunedataError` is raised if it
    has no such column. By default they are those that can only be classes: whole numbers, one a sample, in ``targets``
    or ``labels`` as torchvision has them, or the last tensor of a ``TensorDataset``; or the column ``label`` or
    ``labels`` of a ``datasets.Dataset``, if it is a ``ClassLabel``, or has whole numbers that a model is trained to
    tell apart: ``classes`` of them, by default what the adapter of a trainer says.
    """
    data = getattr(given, "train_dataset", given)
    if data is not given and classes is None:
        classes = getattr(adapter_of(given)[1], "classes_in", lambda _: None)(given)
    whole, places = whole_of(data)
    if places is not None:
        of_all = labels_in(whole, column, classes=classes)
        return None if of_all is None else of_all[places]
    # A dataset of the user's around another may change the order of its rows; a loader has none of its own.
    if hasattr(data, "dataset") and (column is not None or not hasattr(data, "__getitem__")):
        return labels_in(data.dataset, column, classes=classes)
    if column is None:
        return _classes_in(data, classes)
    listed = [*getattr(data, "column_names", ()), *getattr(data, "columns", ())]
    found = _column(data, column) if column in listed else getattr(data, column, None)
    if found is None or callable(found):
        raise PrunedataError(
            f"Expected a data set with the column {column!r} for labels. Got {type(data).__name__} without "
            f"it{': it has ' + ', '.join(map(str, listed)) if listed else ''}. Pass the labels as an array."
        )
    return np.asarray(found[:])


def names_in(dataset: Any) -> list[str] | None:
    """Return the names that a data set has for its samples, without reading them: files, relative to its root.

    That is one with a list ``samples`` of pairs of a file and its class, as torchvision's folders, or whose ``reader``
    has it, as timm's; or a ``Subset`` of one. None for any other.
    """
    whole, places = whole_of(dataset)
    holder = whole if hasattr(whole, "samples") else getattr(whole, "reader", None)
    samples, root = getattr(holder, "samples", None), getattr(holder, "root", None)
    if not isinstance(samples, list) or len(samples) != len(whole):
        return None
    if not all(isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) for each in samples):
        return None
    prefix = os.path.join(root, "") if isinstance(root, str | os.PathLike) else ""  # the folder may move
    names = [file.removeprefix(prefix) for file, _ in samples]
    return names if places is None else [names[at] for at in places.tolist()]


def whole_of(dataset: Any) -> tuple[Any, Ids | None]:
    """Return the data set that a ``Subset`` of PyTorch's is a part of, and the places of its samples there.

    Of any other, return the data set itself and None.
    """
    places = None
    while (of_part := selected_by(dataset)) is not None:
        places, dataset = of_part if places is None else of_part[places], dataset.dataset
    return dataset, places


def _column(data: Any, name: str) -> Any:
    """Return a column as it is stored: a transform would read all samples for it, and may draw random numbers."""
    stored = data.with_format(None) if hasattr(data, "with_format") else data
    return stored[name]


def _classes_in(data: Any, told_apart: int | None) -> Array | None:
    features = getattr(data, "features", None)
    if isinstance(features, Mapping):  # another column need not be what is trained on
        named = [name for name in ("label", "labels") if name in features]
        sure = [name for name in named if type(features[name]).__name__ == "ClassLabel"]
        if not sure and (told_apart is None or len(named) != 1):
            return None
        found = np.asarray(_column(data, (sure or named)[0])[:])
        if sure:
            return found
        known = found.dtype.kind in "iu" and found.ndim == 1 and found.size > 0
        return found if known and 0 <= found.min() <= found.max() < told_apart else None
    if getattr(data, "target_transform", None) is not None:  # they are not what is trained on
        return None
    last = [*getattr(data, "tensors", ())][-1:]
    for found in (getattr(data, "targets", None), getattr(data, "labels", None), *last):
        try:
            classes = np.asarray(found.cpu() if hasattr(found, "cpu") else found)
            many = classes.dtype.kind in "iu" and classes.shape == (len(data),) and np.unique(classes).size
            if many and many <= min(MOST_NAMES, classes.size // 2):  # else they are numbers or names
                return classes
        except Exception:  # whatever is called so in the user's data
            continue
    return None
