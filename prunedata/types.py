"""The types in the library's signatures, most of them of arrays, and the smallest dtype for a count."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
"""Arrays by name."""
Ids = npt.NDArray[np.int64]
"""Checked ids: int64."""
SomeIds = npt.NDArray[np.integer]
"""Ids from samplers, orders and loaders: any integer dtype."""
Keys = npt.NDArray[np.uint64]
"""The hashes of the samples' keys, shape (samples,)."""
Mask = npt.NDArray[np.bool_]
Losses = npt.NDArray[np.float64]
Recorded = npt.NDArray[np.float32] | npt.NDArray[np.float64]
"""Losses in a buffer: float32 if they came as float32, otherwise float64."""
Roles = npt.NDArray[np.uint8]
"""The role of each sample in an epoch, see :class:`prunedata.run.epoch.Role`."""
Sizes = npt.NDArray[np.intp]
"""Samples in each batch of a buffer."""
Means = npt.NDArray[np.float64]
Counts = npt.NDArray[np.unsignedinteger[Any]]
Weights = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Guesses = npt.NDArray[np.int32]
"""The guesses of visits, see :func:`prunedata.counting.guess.two_likeliest`."""
LeaveOut = Literal["delivery", "weight", "nothing"]
"""How pruned epochs leave samples out: see :class:`prunedata.Pruner`."""
AnyBase: Any = object
"""The class of a framework that a mixin is combined with: type checkers then allow what the mixin uses of it."""


def smallest_unsigned(largest: int) -> np.dtype[Any]:
    """Return the smallest unsigned dtype, up to uint32, that holds ``largest``."""
    return np.dtype(np.uint8 if largest < 1 << 8 else np.uint16 if largest < 1 << 16 else np.uint32)
