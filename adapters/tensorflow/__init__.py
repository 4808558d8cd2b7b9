"""TensorFlow: ``wrap(dataset, pruner)`` drops pruned samples before they are parsed and decoded.

A ``tf.data`` pipeline is traced once, so that a mask in an array would stay that of the first epoch. So the mask is a
Variable, to which each epoch assigns its own.
"""

try:
    import tensorflow  # noqa: F401 (only to say what is missing)
except ImportError as error:
    raise ImportError("prunedata.adapters.tensorflow needs TensorFlow: pip install tensorflow") from error

from prunedata.adapters.tensorflow.dataset import samples_in, wrap

__all__ = ["samples_in", "wrap"]
