"""What samples look like: thumbnails, texts and class names, asked of any data set that can be indexed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.errors import PrunedataError
from prunedata.reporting.drawing.png import LARGE_SIDE, SIDE, as_pixels, data_uri, photograph, shrunk
from prunedata.reporting.rows import as_row

__all__ = ["Preview", "Previews"]

LABELS = ("label", "labels", "target", "targets", "class", "cls", "y", "fine_label", "coarse_label")
KEYS = ("__key__", "key", "id", "uid", "name", "path", "filename", "__url__")
"""How data sets call a sample's label and its own name."""


@dataclass(frozen=True)
class Preview:
    """What a reader sees of one sample; None is what it doesn't have.

    Attributes
    ----------
    image : str, optional
        The address of a PNG or JPEG that holds all of it.
    text : str, optional
    label, key : str, optional
        The name of its class, and the sample's own name.
    value : str, optional
        The label as the data set has it: for a class with a name its number.
    row : tuple of (str, str)
        The names and values of a plain row.
    """

    image: str | None = None
    text: str | None = None
    label: str | None = None
    key: str | None = None
    value: str | None = None
    row: tuple[tuple[str, str], ...] = ()


class Previews:
    """Previews of the samples of a data set.

    Parameters
    ----------
    dataset : sequence
        ``dataset[id]`` is a sample: an image (Pillow's, or an array), a text, a tuple of datum and label, or a mapping.
        Class names are taken from ``dataset.classes``, as torchvision has them, or from ``dataset.features``, as
        Hugging Face has them; all labels from ``dataset.targets``, ``dataset.labels`` or a column.
    samples : int
        How many samples it must have.

    Raises
    ------
    PrunedataError
        If it cannot be indexed, or has another length.
    """

    def __init__(self, dataset: Any, samples: int, *, large: bool = False) -> None:
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            raise PrunedataError(
                f"Expected a data set with dataset[id] and len(dataset), to show samples. Got {type(dataset).__name__}."
            )
        if len(dataset) != samples:
            raise PrunedataError(
                f"Expected the data set that the run was trained on, of {samples:,} samples. Got {len(dataset):,}."
            )
        self._dataset, self._large = dataset, large

    def of(self, sample: int) -> Preview:
        """Return the preview of the sample with this id; one that cannot be read says so."""
        try:
            item = self._dataset[sample]
        except Exception as error:
            return Preview(text=f"could not be read: {type(error).__name__}: {error}")
        if isinstance(item, Mapping):
            return self._of_mapping(item)
        if isinstance(item, (tuple, list)) and item:
            label = item[1] if len(item) > 1 else None
            return self._of_values(item[:1], label, None, None)
        return self._of_values([item], None, None, None)

    def labels(self) -> npt.NDArray[Any] | None:
        """Return the names or numbers of all labels, shape (samples,), or None if the data set does not list them."""
        labels, names = self.values()
        return labels if labels is None or not names else np.asarray(np.array(names, dtype=np.str_)[labels])

    def values(self) -> tuple[npt.NDArray[Any] | None, tuple[str, ...]]:
        """Return all labels as the data set has them, or None if it does not list them, and the names of their classes.

        Names are () where the labels are names themselves, or numbers that have none.
        """
        found = next(
            (getattr(self._dataset, name) for name in ("targets", "labels") if hasattr(self._dataset, name)), None
        )
        column = None
        if found is None:
            column = next((name for name in LABELS if name in getattr(self._dataset, "column_names", ())), None)
            found = None if column is None else self._dataset[column]
        labels = None if found is None or callable(found) else _as_array(found)
        if labels is None or labels.shape != (len(self._dataset),) or labels.dtype.kind not in "iuU":
            return None, ()
        names = tuple(map(str, self._names(column)))
        if labels.dtype.kind == "U" or labels.min(initial=0) < 0 or labels.max(initial=0) >= len(names):
            return labels, ()
        return labels, names

    def _of_mapping(self, item: Mapping[Any, Any]) -> Preview:
        label_name = next((name for name in LABELS if name in item), None)
        key = next((item[name] for name in KEYS if isinstance(item.get(name), (str, int))), None)
        shown = {str(name): value for name, value in item.items() if name != label_name and name not in KEYS}
        label = None if label_name is None else item[label_name]
        return self._of_values(list(shown.values()), label, label_name, key, tuple(shown))

    def _of_values(
        self, values: Sequence[Any], label: Any, column: str | None, key: Any, names: Sequence[str] = ()
    ) -> Preview:
        image = next((found for found in (_image(value, self._large) for value in values) if found is not None), None)
        text = next((value for value in values if isinstance(value, str)), None)
        alone = (image is not None or text is not None) and len(values) == 1
        row = () if alone else as_row(values, names or getattr(self._dataset, "feature_names", ()))
        if image is None and text is None:
            text = "; ".join(f"{name} {value}" for name, value in row) or (_described(values[0]) if values else None)
        named = None if key is None else str(key)
        return Preview(image, text, self._label(label, column), named, _value(label), row)

    def _label(self, label: Any, column: str | None) -> str | None:
        value, names = _value(label), self._names(column)
        if value is None or isinstance(label, str) or not value.isdigit() or int(value) >= len(names):
            return value
        return str(names[int(value)])

    def _names(self, column: str | None) -> Sequence[Any]:
        """The class names that the data set has; none is ()."""
        features = getattr(self._dataset, "features", None)
        found = getattr(features.get(column), "names", None) if column and isinstance(features, Mapping) else None
        names = getattr(self._dataset, "classes", None) if found is None else found
        return names if isinstance(names, Sequence) and not isinstance(names, str) else ()


def _value(label: Any) -> str | None:
    """A label as text: a name as it is, a number in digits."""
    if label is None or isinstance(label, str):
        return label
    array = _as_array(label)
    if array is None or array.size != 1 or array.dtype.kind not in "biuf":
        return None
    return str(array.reshape(()).item())


def _image(value: Any, large: bool) -> str | None:
    """An image as the address of its thumbnail; None for what is no image."""
    if isinstance(value, (str, bytes)):
        return None
    if hasattr(value, "convert") and hasattr(value, "thumbnail"):  # of Pillow, whose modes are many
        value = value.convert("RGB")
        if large and max(value.size) > SIDE:
            return photograph(value)
    array = _as_array(value)
    pixels = None if array is None else as_pixels(array)
    if pixels is None or min(pixels.shape[:2]) < 2:
        return None
    return data_uri(shrunk(pixels, LARGE_SIDE if large else SIDE))


def _as_array(value: Any) -> npt.NDArray[Any] | None:
    """A value as numpy sees it, if it does; of tensors those too that are on a device or want a gradient."""
    for step in ("detach", "cpu"):
        value = getattr(value, step)() if callable(getattr(value, step, None)) else value
    try:
        return np.asarray(value)
    except Exception:
        return None


def _described(value: Any) -> str:
    shape = getattr(value, "shape", None)
    kind = type(value).__name__
    return kind if shape is None else f"{kind} of shape {tuple(shape)}"
