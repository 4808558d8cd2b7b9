"""Where a model records its losses: one recorder for each backend of Keras."""

from typing import Any

import keras

from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner

__all__ = ["recorder_for"]


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
