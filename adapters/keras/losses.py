"""The losses of single samples, from a compiled Keras model, and its loss over those that count.

This needs what Keras keeps to itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
from keras.src.backend import get_keras_mask, set_keras_mask

from prunedata.counting.guess import IGNORED, MOST_CLASSES
from prunedata.errors import LossError, PrunedataError

OF_CLASSES = (
    keras.losses.sparse_categorical_crossentropy,
    keras.losses.categorical_crossentropy,
    keras.losses.categorical_focal_crossentropy,
)
"""Losses of outputs of which each is a class's."""


def sample_losses(model: Any, y: Any, y_pred: Any, sample_weight: Any) -> Any:
    """Return the losses of a batch's samples, shape (n,), without the losses that layers add.

    With several outputs it is the sum over them, by ``loss_weights``. A loss of several values for a sample, as one a
    step of a sequence, counts as the mean of those that are not masked. Raises :class:`PrunedataError` if the model was
    compiled without a loss, and :class:`LossError` if a loss gives one value for the whole batch.
    """
    if model._compile_loss is None:
        raise PrunedataError(
            "Expected a model compiled with a loss. Got none: call self.observe(losses, ids) in a train_step of yours."
        )
    # Keras knows which target belongs to which output, so the copy is Keras's own, but its losses do not reduce.
    each = _wrapped(model._compile_loss, _OneEach, has_metrics=False)
    return keras.ops.stop_gradient(each(y, y_pred, sample_weight))


def logits_of(model: Any, y_pred: Any) -> Any:
    """Return a model's outputs, or None if they don't say of each sample how likely each of its classes is."""
    shape, compiled = tuple(getattr(y_pred, "shape", ())), model._compile_loss
    entries = [] if compiled is None else compiled._flat_losses or []
    of_classes = len(entries) == 1 and getattr(entries[0].loss, "fn", None) in OF_CLASSES
    return y_pred if of_classes and len(shape) == 2 and 2 <= shape[1] <= MOST_CLASSES else None


def labels_of(model: Any, y: Any) -> Any:
    """Return the labels of samples, int32 of shape (n,), -100 for none; None unless the loss compares with classes."""
    compiled, shape = model._compile_loss, tuple(getattr(y, "shape", ()))
    entries = [] if compiled is None else compiled._flat_losses or []
    of_classes = len(entries) == 1 and getattr(entries[0].loss, "fn", None) is OF_CLASSES[0]
    if not of_classes or shape[1:] not in ((), (1,)):
        return None
    labels = keras.ops.cast(keras.ops.reshape(y, (-1,)), "int32")
    return keras.ops.where(labels < 0, IGNORED, labels)


@contextmanager
def weighed(model: Any, weights: Any) -> Iterator[None]:
    """Replace a model's loss by that of samples that count, by weights of shape (n,), reduced as Keras reduces it."""
    compiled = model._compile_loss
    if weights is None or compiled is None:
        yield
        return
    model._compile_loss = _wrapped(compiled, lambda loss: _Weighed(loss, *weights), has_metrics=True)
    try:
        yield
    finally:
        model._compile_loss = compiled


def _wrapped(compiled: Any, wrap: Callable[[Any], Any], *, has_metrics: bool) -> Any:
    """Return a copy of the compiled loss whose single losses are wrapped."""
    copy = _copied(compiled)

    def build(y: Any, y_pred: Any) -> None:
        if not compiled.built:
            compiled.build(y, y_pred)
        vars(copy).update(vars(compiled))
        copy._flat_losses = [entry._replace(loss=wrap(entry.loss)) for entry in compiled._flat_losses]
        if not has_metrics:
            copy._metrics = [None] * len(copy._flat_losses)

    copy.built, copy.build = False, build
    return copy


class _OneEach:
    def __init__(self, loss: Any) -> None:
        self.loss = _copied(loss)
        self.loss.reduction = None

    def __call__(self, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        masks = [get_keras_mask(y_pred)]

        def call(y: Any, y_pred: Any) -> Any:
            losses = type(self.loss).call(self.loss, y, y_pred)
            masks.append(get_keras_mask(losses))
            return losses

        self.loss.call = call
        losses = self.loss(y, y_pred, sample_weight)
        rank = len(losses.shape)
        if rank == 0:
            raise LossError(
                f"Expected a loss for each sample. Got one number from {self.loss.name}: return values of shape (n,), "
                "which Keras averages."
            )
        if rank == 1:
            return losses
        counted, values = keras.ops.ones_like(losses), tuple(range(1, rank))
        for mask in masks:  # Keras has made 0 of what they leave out
            if mask is not None:
                shape = (*keras.ops.shape(mask), *(1,) * (rank - len(mask.shape)))
                counted *= keras.ops.cast(keras.ops.reshape(mask, shape), losses.dtype)
        return keras.ops.sum(losses, values) / keras.ops.maximum(keras.ops.sum(counted, values), 1)


class _Weighed:
    """A loss in which samples that don't count are masked: Keras's reductions leave what is masked out of all sums."""

    def __init__(self, loss: Any, weights: Any, counting: Any) -> None:
        self.loss, self._weights, self._counting = loss, weights, counting

    def __call__(self, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        copy, mask = _copied(self.loss), get_keras_mask(y_pred)

        def call(y: Any, y_pred: Any) -> Any:
            losses = self.loss.call(y, y_pred)
            if not losses.shape:
                return losses  # one number for the batch, which is refused when losses are recorded
            own = get_keras_mask(losses)
            counting = _along(self._counting, losses if mask is None else mask)
            if mask is None and sample_weight is None:  # as Keras divides by the number of all values then
                counting = keras.ops.broadcast_to(counting, keras.ops.shape(losses))
            weights = _along(self._weights, losses)
            losses = losses * keras.ops.cast(weights, losses.dtype)
            set_keras_mask(losses, counting if own is None else keras.ops.logical_and(counting, own))
            return losses

        copy.call = call
        return copy(y, y_pred, sample_weight)


def _along(values: Any, other: Any) -> Any:
    """Values of shape (n,) in a shape that goes along with that of ``other``, (n, ...)."""
    return keras.ops.reshape(values, (-1,) + (1,) * (len(other.shape) - 1))


def _copied(loss: Any) -> Any:
    """A shallow copy. ``copy.copy`` would save and load it."""
    copied = object.__new__(type(loss))
    copied.__dict__.update(vars(loss))
    return copied
