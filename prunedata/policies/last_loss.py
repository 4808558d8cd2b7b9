"""What policies share that go by the loss which each sample had last."""

import numpy as np

from prunedata.types import Array, Ids, Losses

__all__ = ["LARGEST", "LastLoss"]

LARGEST = float(np.finfo(np.float32).max)


class LastLoss:
    """Keeps the loss that each sample had last: float32, NaN before its first."""

    def arrays(self, samples: int) -> dict[str, Array]:
        """``loss``, the last loss of each sample."""
        return {"loss": np.full(samples, np.nan, dtype=np.float32)}

    def update(self, arrays: dict[str, Array], ids: Ids, losses: Losses, means: Losses) -> None:
        """Overwrite the losses; of a sample that is named several times the last one holds."""
        arrays["loss"][ids] = np.clip(losses, -LARGEST, LARGEST)
