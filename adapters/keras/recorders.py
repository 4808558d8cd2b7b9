"""Where a model records its losses: one recorder for each backend of Keras."""

from typing import Any

import keras

from prunedata.errors import PrunedataError
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.types import Mask, SomeIds, Weights

__all__ = ["recorder_for", "weights_in"]


def recorder_for(pruner: Pruner) -> Any:
    """Return a recorder for the backend that Keras runs on; raise if there is none."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        from prunedata.adapters.keras.on_tensorflow import GraphRecorder  # noqa: PLC0415 (one backend is in use)

        return GraphRecorder(pruner)
    if backend == "torch":
        from prunedata.adapters.keras.on_torch import TorchRecorder  # noqa: PLC0415

        return TorchRecorder(pruner)
    if backend == "jax":
        from prunedata.adapters.keras.on_jax import JaxRecorder  # noqa: PLC0415

        return JaxRecorder(pruner)
    raise PrunedataError(
        f"Expected Keras with the tensorflow, the torch or the jax backend (KERAS_BACKEND). Got {backend!r}."
    )


def weights_in(epoch: Epoch, ids: SomeIds) -> tuple[Weights, Mask]:
    """What the loss of each sample weighs, and whether it counts, both of shape (n,), as the epoch has it."""
    counts = epoch.trained
    return epoch.loss_weights(ids), counts[ids]
