"""Keras 3: a mixin for the model and a callback for ``fit``, over a dataset that ``wrap`` wrapped.

``fit`` exposes neither ids nor the losses of single samples. The mixin removes the ids from each batch before the model
sees it, and records them with the losses; the callback opens and ends the epochs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    import keras
except ImportError as error:
    raise ImportError("prunedata.adapters.keras needs Keras 3 and its backend: pip install keras tensorflow") from error
if tuple(map(int, keras.__version__.split(".")[:2])) < (3, 7):  # its losses and masks were other objects
    raise ImportError(
        f"prunedata.adapters.keras needs Keras 3.7 or newer. Got {keras.__version__}: pip install --upgrade keras"
    )

if TYPE_CHECKING:
    from prunedata.adapters.keras.callback import PruneCallback
    from prunedata.adapters.keras.model import PruneMixin
    from prunedata.adapters.tensorflow import samples_in, wrap

__all__ = ["PruneCallback", "PruneMixin", "samples_in", "wrap"]


def __getattr__(name: str) -> Any:
    """Load what has datasets of TensorFlow when it is asked for: ``watch`` does without, on PyTorch and JAX."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    places = {"PruneCallback": "keras.callback", "PruneMixin": "keras.model"}
    try:
        import tensorflow  # noqa: F401, PLC0415 (only to say what is missing)
    except ImportError as error:
        raise ImportError(f"{name} of prunedata.adapters.keras needs TensorFlow: pip install tensorflow") from error
    return getattr(import_module(f"prunedata.adapters.{places.get(name, 'tensorflow')}"), name)
