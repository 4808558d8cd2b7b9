"""The labels of a run: the number of each sample's class, in few bytes, and the names of the classes."""

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.checks import shown
from prunedata.counting.guess import IGNORED
from prunedata.errors import PrunedataError
from prunedata.types import Array, smallest_unsigned

LABELS = "labels"
"""Under this name they are saved: the numbers as an array, and in the run's description the classes."""
MOST_NAMES = 1 << 15
"""Of classes: more are no classes, but targets."""
LONGEST_NAME = 256


@dataclass(frozen=True, eq=False)
class GivenLabels:
    """Labels of all samples."""

    numbers: npt.NDArray[np.unsignedinteger[Any]]  # which of the classes each label is, shape (samples,)
    classes: tuple[int, ...] | tuple[str, ...]  # all that there are, sorted

    @property
    def named(self) -> bool:
        """Whether the classes are names."""
        return isinstance(self.classes[0], str)

    @property
    def places(self) -> npt.NDArray[np.int32]:
        """Where each class stands in logits: a number at its place, names in their order. -1 for none."""
        if self.named:
            return np.arange(len(self.classes), dtype=np.int32)
        places = np.array(self.classes, dtype=np.int64)
        places = np.where(places == IGNORED, -1, np.where(places < 0, -2, places))
        return np.minimum(places, np.iinfo(np.int32).max).astype(np.int32)

    @property
    def described(self) -> dict[str, Any]:
        """The description for the store, which keeps the numbers as an array."""
        return {"classes": list(self.classes), "checksum": zlib.crc32(np.ascontiguousarray(self.numbers).data)}


def given_labels(given: Any, samples: int) -> GivenLabels:
    """Return labels as a run keeps them, from an array of int or str, shape (samples,).

    Raises :class:`PrunedataError` if they are anything else, or of more than 32,768 classes.
    """
    if hasattr(given, "detach"):
        given = given.detach().cpu()
    try:
        labels: Array = np.asarray(given)
    except ValueError as error:  # of several lengths
        raise PrunedataError(f"Expected labels of shape ({samples},). Got {shown(error)}.") from error
    if labels.dtype.kind == "O" and all(isinstance(one, str) for one in labels.flat):
        labels = labels.astype(np.str_)
    if labels.dtype.kind == "b":
        labels = labels.astype(np.uint8)
    if labels.shape != (samples,) or labels.dtype.kind not in "iuUT":
        raise PrunedataError(
            f"Expected labels of shape ({samples},), whole numbers or text, one for each sample by its id. Got shape "
            f"{labels.shape}, {labels.dtype}: pass the classes, as np.array(train_set.targets)."
        )
    names, numbers = np.unique(labels, return_inverse=True)
    if names.size > MOST_NAMES or (names.dtype.kind in "UT" and max(map(len, names.tolist())) > LONGEST_NAME):
        raise PrunedataError(
            f"Expected labels of at most {MOST_NAMES:,} classes, with names of up to {LONGEST_NAME} characters. Got "
            f"{names.size:,}: leave labels out where targets are no classes."
        )
    return GivenLabels(numbers.astype(smallest_unsigned(names.size - 1)), tuple(names.tolist()))
