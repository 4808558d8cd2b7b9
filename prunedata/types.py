"""The array types that the library's signatures name, and the smallest dtype that holds a count."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

__all__ = [
    "Array", "Arrays", "Counts", "Floats", "Guesses", "Ids", "Keys", "LeaveOut", "Losses", "Mask", "Means", "Recorded",
    "Roles",
    "Sizes", "SomeIds", "Weights", "smallest_unsigned",
]  # fmt: skip

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
"""Arrays by name."""
Ids = npt.NDArray[np.int64]
"""Ids that were checked: int64."""
SomeIds = npt.NDArray[np.integer]
"""Ids as samplers, orders and loaders give them: any integer dtype."""
Keys = npt.NDArray[np.uint64]
"""The hashes of the samples' keys, shape (samples,)."""
Mask = npt.NDArray[np.bool_]
Losses = npt.NDArray[np.float64]
Recorded = npt.NDArray[np.float32] | npt.NDArray[np.float64]
"""Losses as a buffer keeps them: float32 where they came so, otherwise float64."""
Roles = npt.NDArray[np.uint8]
"""Of each sample its part in an epoch, see :class:`prunedata.run.epoch.Role`."""
Sizes = npt.NDArray[np.intp]
"""Samples in each batch of a buffer."""
Means = npt.NDArray[np.float64]
Counts = npt.NDArray[np.unsignedinteger[Any]]
Weights = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Guesses = npt.NDArray[np.int32]
"""What visits say by their logits, see :func:`prunedata.counting.guess.two_likeliest`."""
LeaveOut = Literal["delivery", "weight", "nothing"]
"""How pruned epochs leave samples out: see :class:`prunedata.Pruner`."""


def smallest_unsigned(largest: int) -> np.dtype[Any]:
    """The smallest unsigned dtype, up to uint32, that holds ``largest``; counts saturate at its maximum."""
    return np.dtype(np.uint8 if largest < 1 << 8 else np.uint16 if largest < 1 << 16 else np.uint32)
