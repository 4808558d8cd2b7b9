"""Recorders of a model's losses: one for each backend of Keras."""

from importlib import import_module
from typing import Any

import keras

from prunedata.counting.batches import NO_NUMBER
from prunedata.counting.guess import MOST_CLASSES, classes_in
from prunedata.errors import PrunedataError
from prunedata.run.adapter import Adapter
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner
from prunedata.types import Array, Mask, SomeIds, Weights

UNSEEN = -1
"""In the place of the label of a sample whose batch came without labels."""
RECORDERS = {"tensorflow": "GraphRecorder", "torch": "TorchRecorder", "jax": "JaxRecorder"}


class StepRecorder(Adapter):
    """Records the losses of a model's steps, and has what they weigh.

    Its ``weights_of(ids)`` returns the weights of a batch's losses and which samples count, shape (n,) each, or None if
    all are equal; ``add(ids, losses, logits=None, labels=None)`` records a batch. Both are called within a step.
    Outside of one, ``add(..., sizes=sizes)`` records several batches, of so many samples each, on torch and JAX.
    ``waiting`` are the ids of the batch that is trained on, shape (n,), until its losses are known.
    """

    key = "keras"
    by_weight = True

    def __init__(self, pruner: Pruner) -> None:
        self.waiting: Any = None
        self._pruner, self._handed_over = pruner, 0
        self._takes_labels = pruner.needs_labels
        self._epoch: Epoch | None = None

    def begin_epoch(self, epoch: Epoch) -> None:
        """Begin an epoch, or go on with it."""
        self._epoch, self._handed_over = epoch, 0

    def _see_labels(self, ids: SomeIds, labels: Array) -> None:
        """Let the run keep the labels of samples, or compare them, but for :data:`UNSEEN` ones."""
        came = labels != UNSEEN
        if came.any() and self._pruner.wants_labels:
            self._pruner.see_labels(ids[came], labels[came], sure=False)

    @property
    def count(self) -> int:
        """Losses since the epoch was begun."""
        return self._handed_over


def recorder_for(pruner: Pruner) -> Any:
    """Return a recorder for the backend that Keras runs on; raise if there is none."""
    backend = keras.backend.backend()
    if backend not in RECORDERS:
        raise PrunedataError(
            f"Expected Keras with the tensorflow, the torch or the jax backend (KERAS_BACKEND). Got {backend!r}."
        )
    module = import_module(f"prunedata.adapters.keras.on_{backend}")  # the others may lack their framework
    return getattr(module, RECORDERS[backend])(pruner)


def weights_in(epoch: Epoch, ids: SomeIds) -> tuple[Weights, Mask]:
    """Return the weight of each sample's loss, and whether it counts, both of shape (n,)."""
    return epoch.loss_weights(ids), epoch.trained[ids]


def two_likeliest(logits: Any) -> tuple[Any, int]:
    """Return what logits say of each sample, as :func:`prunedata.counting.guess.two_likeliest`, within a step."""
    is_floating = keras.backend.is_float_dtype(keras.backend.standardize_dtype(logits.dtype))
    classes = classes_in(tuple(logits.shape), is_floating=is_floating, dtype=logits.dtype)
    logits = keras.ops.cast(keras.ops.stop_gradient(logits), "float32")
    if len(logits.shape) == 1:
        logits = keras.ops.stack([keras.ops.zeros_like(logits), logits], axis=1)
    both = keras.ops.cast(keras.ops.top_k(logits, 2)[1], "int32")
    unknown = keras.ops.any(keras.ops.isnan(logits), axis=1)
    return keras.ops.where(unknown, NO_NUMBER, both[:, 0] * MOST_CLASSES + both[:, 1]), classes
