"""Visits with a high loss: for each sample, how often its loss was above that of a blind guess."""

import math

import numpy as np

from prunedata.types import Array, Arrays, Ids, Losses, smallest_unsigned

__all__ = ["High"]


class High:
    """Counts the visits of each sample with a loss above ``ln(classes)``.

    The array ``high``, shape (samples,), uint16 in runs of up to 65,535 epochs, saturates.
    """

    def __init__(self, classes: int, epochs: int) -> None:
        self.limit = math.log(classes)
        self._dtype = np.promote_types(np.uint16, smallest_unsigned(epochs))

    def arrays(self, samples: int) -> dict[str, Array]:
        """``high``."""
        return {"high": np.zeros(samples, self._dtype)}

    def update(self, arrays: Arrays, ids: Ids, losses: Losses, means: Losses) -> None:
        """Count some visits, each sample named once."""
        high, which = arrays["high"], ids[losses > self.limit]
        high[which] = np.minimum(high[which], np.iinfo(high.dtype).max - 1) + 1
