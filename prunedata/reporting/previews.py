"""Previews of samples: images, texts, rows and class names, from any data set that can be indexed."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.checks import shown
from prunedata.errors import PrunedataError
from prunedata.run.frameworks import names_in, whole_of

LABELS = ("label", "labels", "target", "targets", "class", "cls", "y", "fine_label", "coarse_label")
KEYS = ("__key__", "key", "id", "uid", "name", "path", "filename", "__url__")
"""How data sets call a sample's label and its own name."""
SPEAKER, MESSAGE = ("role", "from"), ("content", "value")  # how chats call who says a message, and what
COLUMNS = ("feature_names", "columns", "column_names")  # where they list the names of a row's values
SIDE, LARGE_SIDE = 96, 224  # pixels of a picture's longer side, at most: in a list, and of one that is looked at alone
CHANNELS = (1, 3, 4)
MOST_VALUES, MOST_CHARACTERS = 64, 4_000  # of a row, and of a value


@dataclass(frozen=True)
class Preview:
    """The preview of one sample; None for a part that it lacks.

    ``image`` is a ``data:`` address that holds all of a PNG or JPEG; ``label`` the name of its class, and ``value`` the
    label as the data set has it, which may be the number of that class; ``key`` the sample's own name; ``row`` the
    names and values of a plain row.
    """

    image: str | None = None
    text: str | None = None
    label: str | None = None
    key: str | None = None
    value: str | None = None
    row: tuple[tuple[str, str], ...] = ()


class Previews:
    """Previews of the samples of a data set; ``large`` if they are looked at one by one.

    ``dataset[id]`` is a sample: an image (Pillow's, or an array), a text, a tuple of datum and label, or a mapping.
    Class names are taken from ``dataset.classes``, as torchvision has them, or from ``dataset.features``, as Hugging
    Face has them; all labels from ``dataset.targets``, ``dataset.labels`` or a column; the names of a row's values from
    ``dataset.feature_names`` or ``dataset.columns``; the files of samples from ``dataset.samples``, pairs of a path and
    a class. A ``Subset`` has those of the data set that it is a part of. Raises :class:`PrunedataError` if it cannot be
    indexed, or does not have so many samples.
    """

    def __init__(self, dataset: Any, samples: int, *, large: bool = False) -> None:
        if isinstance(dataset, type) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            got = f"the class {dataset.__name__}" if isinstance(dataset, type) else type(dataset).__name__
            raise PrunedataError(f"Expected a data set with dataset[id] and len(dataset), to show samples. Got {got}.")
        if len(dataset) != samples:
            raise PrunedataError(
                f"Expected the data set that the run was trained on, of {samples:,} samples. Got {len(dataset):,}."
            )
        self._dataset, self._large = dataset, large
        self._whole, self._places = whole_of(dataset)
        self._files: Sequence[str] | None = None  # their names, once they are known
        dataset = self._whole
        features = getattr(dataset, "features", None)
        features = features if isinstance(features, Mapping) else {}
        label = next((name for name in LABELS if name in features), None)
        names: Any = getattr(features.get(label), "names", None)
        names = getattr(dataset, "classes", ()) if names is None else names
        listed = isinstance(names, Sequence) and not isinstance(names, str)
        self.classes: tuple[str, ...] = tuple(map(str, names)) if listed else ()
        """The names of the classes that are numbers from 0; () if the data set lists none."""

    def of(self, sample: int) -> Preview:
        """Return the preview of the sample with this id; its text is the error if the sample cannot be read."""
        try:
            item = self._dataset[sample]
        except Exception as error:
            return Preview(text=f"could not be read: {type(error).__name__}: {error}")
        if isinstance(item, Mapping):
            return self._of_mapping(item)
        if isinstance(item, (tuple, list)) and item and isinstance(item[0], Mapping):
            return self._of_mapping({**item[0], **dict(zip(LABELS, item[1:2], strict=False))})
        if self._files is None:
            self._files = names_in(self._dataset) or ()
        file = self._files[sample] if self._files else None
        if isinstance(item, (tuple, list)) and item:
            if len(item) > 2 and _is_number(item[0]):  # of a user, an item and a rating, for example: any is the label
                return self._of_values(item, None, file)
            return self._of_values(item[:1], item[1] if len(item) > 1 else None, file)
        return self._of_values([item], None, file)

    def values(self) -> tuple[npt.NDArray[Any] | None, tuple[str, ...]]:
        """Return all labels that the data set lists, or None, and the names of their classes, () for none."""
        column = next((name for name in LABELS if name in getattr(self._dataset, "column_names", ())), None)
        listed = [getattr(self._whole, name) for name in ("targets", "labels") if hasattr(self._whole, name)]
        found = listed[0] if listed else None if column is None else self._dataset[column]
        labels = None if found is None or callable(found) else _as_array(found)
        if listed and labels is not None and self._places is not None and labels.shape == (len(self._whole),):
            labels = labels[self._places]
        if labels is None or labels.shape != (len(self._dataset),) or labels.dtype.kind not in "iuU":
            return None, self.classes
        if labels.dtype.kind == "U" or labels.min(initial=0) < 0 or labels.max(initial=0) >= len(self.classes):
            return labels, ()
        return labels, self.classes

    def _of_mapping(self, item: Mapping[Any, Any]) -> Preview:
        label_name = next((name for name in LABELS if name in item), None)
        key = next((item[name] for name in KEYS if isinstance(item.get(name), (str, int))), None)
        others = {str(name): value for name, value in item.items() if name != label_name and name not in KEYS}
        shown = {name: _said(value) for name, value in others.items()}
        label = None if label_name is None else item[label_name]
        return self._of_values(list(shown.values()), label, key, tuple(shown))

    def _of_values(self, values: Sequence[Any], label: Any, key: Any = None, names: Sequence[str] = ()) -> Preview:
        image = next((found for found in (picture(value, self._large) for value in values) if found is not None), None)
        text = next((value for value in values if isinstance(value, str)), None)
        alone = (image is not None or text is not None) and len(values) == 1
        key = None if key == text else key  # a list of texts and classes, not of files
        row = () if alone else _row(values, names or self._columns())
        if image is None and text is None and not row and values:
            text = _described(values[0])
        return Preview(image, text, self._label(label), None if key is None else str(key), _value(label), row)

    def _columns(self) -> list[str]:
        """The names of a row's values that the data set lists, its label left out."""
        listed = next((getattr(self._whole, name) for name in COLUMNS if hasattr(self._whole, name)), ())
        return [str(name) for name in listed if str(name) not in LABELS]

    def _label(self, label: Any) -> str | None:
        value = _value(label)
        if isinstance(label, str) or value is None or not value.isdigit() or int(value) >= len(self.classes):
            return value
        return self.classes[int(value)]


def _value(label: Any) -> str | None:
    """A label as text: a name as it is, a number in digits."""
    if label is None or isinstance(label, str):
        return label
    array = _as_array(label)
    return None if array is None or array.size != 1 or array.dtype.kind not in "biuf" else str(array.item())


# -- images


def picture(value: Any, large: bool = False) -> str | None:
    """Return an image, Pillow's or an array, as the ``data:`` address of its thumbnail; None for what is no image."""
    try:
        from PIL import Image  # noqa: PLC0415 (comes with matplotlib, which only a report needs)
    except ImportError:
        return None

    if hasattr(value, "convert") and hasattr(value, "thumbnail"):  # of Pillow, whose modes are many
        shown = value.convert("RGB")
    else:
        array = _as_array(value)
        pixels = None if array is None else as_pixels(array)
        if pixels is None or min(pixels.shape[:2]) < 2:
            return None
        shown = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    form = "jpeg" if large and max(shown.size) > SIDE else "png"  # a photograph takes a tenth of it as JPEG
    shown.thumbnail((LARGE_SIDE, LARGE_SIDE) if large else (SIDE, SIDE))
    file = BytesIO()
    shown.save(file, form, quality=85, optimize=True)
    return f"data:image/{form};base64,{b64encode(file.getvalue()).decode('ascii')}"


def as_pixels(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8] | None:
    """Return an image as uint8 of shape (height, width, channels), or None if the array is none.

    It may be of shape (height, width), (height, width, channels) or (channels, height, width), with 1, 3 or 4 channels.
    Bytes stay as they are; floats from 0 to 1 are shares of white; all else is spread from its least to its greatest.
    """
    if array.dtype.kind not in "buif" or array.ndim not in (2, 3) or not array.size:
        return None
    if array.ndim == 2:
        array = array[:, :, np.newaxis]
    if array.shape[2] not in CHANNELS and array.shape[0] in CHANNELS:
        array = np.moveaxis(array, 0, 2)
    if array.shape[2] not in CHANNELS:
        return None
    array = array[:, :, :3]
    if array.dtype == np.uint8:
        return array
    values = np.nan_to_num(array.astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = float(values.min()), float(values.max())
    if array.dtype.kind in "bf" and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    return (255 * (values - low) / ((high - low) or 1.0)).round().astype(np.uint8)


# -- rows


def _row(values: Sequence[Any], names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The names and values of a row: one array of features, or texts and numbers; () if it has neither."""
    if len(values) == 1 and not isinstance(values[0], str | bytes):
        array = _as_array(values[0])
        if array is not None and array.ndim == 1 and array.dtype.kind in "biufUO":
            values, names = array.tolist(), names if len(names) == array.size else ()
        elif not names:
            return ()
    named = names if len(names) == len(values) else [str(at) for at in range(len(values))]
    row = ((str(name), _cell(value)) for name, value in zip(named, values, strict=True))
    return tuple((name, cell) for name, cell in row if cell is not None)[:MOST_VALUES]


def _cell(value: Any) -> str | None:
    if isinstance(value, str):
        return value[:MOST_CHARACTERS]
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    if value is None or isinstance(value, bool | int | np.integer | np.bool_):
        return str(value)
    array = np.asarray(value) if hasattr(value, "shape") else None
    return None if array is None or array.size != 1 or array.dtype.kind not in "biuf" else _cell(array.item())


def _is_number(value: Any) -> bool:
    return value is not None and not isinstance(value, str) and not getattr(value, "ndim", 0) and bool(_cell(value))


def _as_array(value: Any) -> npt.NDArray[Any] | None:
    """A value as numpy sees it, if it does; also tensors that are on a device or want a gradient."""
    for step in ("detach", "cpu"):
        value = getattr(value, step)() if callable(getattr(value, step, None)) else value
    try:
        return np.asarray(value)
    except Exception:
        return None


def _written(value: Any) -> str | None:
    """Lists and mappings of texts and numbers as JSON; None for others."""
    try:
        return json.dumps(value, ensure_ascii=False)[:MOST_CHARACTERS]
    except (TypeError, ValueError, RecursionError):
        return None


def _said(value: Any) -> Any:
    """The messages of a chat as one text, and the only value of a list; anything else as it is."""
    if not isinstance(value, list) or not value:
        return value
    if all(isinstance(one, Mapping) and not one.keys().isdisjoint(MESSAGE) for one in value):
        return " / ".join(_message(one) for one in value)
    return value[0] if len(value) == 1 else value


def _message(message: Mapping[Any, Any]) -> str:
    """Who says a message, and its texts: its content is one, or a list of parts such as pictures."""
    who = next((message[name] for name in SPEAKER if name in message), None)
    content = next(message[name] for name in MESSAGE if name in message)
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    text = " ".join(one for one in texts if isinstance(one, str))
    return text if who is None else f"{who}: {text}"


def _described(value: Any) -> str:
    if _is_number(value):
        return str(_cell(value))
    if isinstance(value, list | Mapping):
        return _written(value) or shown(value)
    shape = getattr(value, "shape", None)
    return type(value).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")
