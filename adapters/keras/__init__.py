"""Keras 3: a mixin for the model and a callback for ``fit``, over a dataset that ``wrap`` wrapped.

``fit`` exposes neither ids nor the losses of single samples. The mixin removes the ids from each batch before the model
sees it, and records them with the losses; the callback opens and ends the epochs.
"""

try:
    import keras
    import tensorflow  # noqa: F401 (only to say what is missing)
except ImportError as error:
    raise ImportError("prunedata.adapters.keras needs Keras 3 and TensorFlow: pip install tensorflow") from error
if tuple(map(int, keras.__version__.split(".")[:2])) < (3, 7):  # its losses and masks were other objects
    raise ImportError(
        f"prunedata.adapters.keras needs Keras 3.7 or newer. Got {keras.__version__}: pip install --upgrade keras"
    )

from prunedata.adapters.keras.callback import PruneCallback
from prunedata.adapters.keras.model import PruneMixin
from prunedata.adapters.tensorflow import samples_in, wrap

__all__ = ["PruneCallback", "PruneMixin", "samples_in", "wrap"]
