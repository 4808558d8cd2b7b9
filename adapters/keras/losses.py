"""One loss for each sample, from a compiled Keras model. This needs what Keras keeps to itself."""

from typing import Any

import keras

from prunedata.errors import LossError, PrunedataError

__all__ = ["sample_losses", "times"]


def sample_losses(model: Any, y: Any, y_pred: Any, sample_weight: Any) -> Any:
    """Return the losses of a batch, shape (n,), that the model's loss is the mean of; without what layers add.

    With several outputs it is the sum over them, by ``loss_weights``. A loss of several values for a sample, as one a
    step of a sequence, counts as their mean.

    Raises
    ------
    PrunedataError
        If the model was compiled without a loss.
    LossError
        If a loss gives one value for the whole batch.
    """
    compiled = model._compile_loss
    if compiled is None:
        raise PrunedataError(
            "Expected a model compiled with a loss. Got none: call self.observe(ids, losses) in a train_step of yours."
        )
    # Keras knows which target belongs to which output, so the copy is Keras's own, but its losses do not reduce.
    copy = _copied(compiled)
    copy._flat_losses = [entry._replace(loss=_OneEach(entry.loss)) for entry in compiled._flat_losses]
    copy._metrics = [None] * len(copy._flat_losses)
    return keras.ops.stop_gradient(copy(y, y_pred, sample_weight))


class _OneEach:
    def __init__(self, loss: Any) -> None:
        self.loss = _copied(loss)
        self.loss.reduction = None

    def __call__(self, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        losses = self.loss(y, y_pred, sample_weight)
        rank = len(losses.shape)
        if rank == 0:
            raise LossError(
                f"Expected a loss for each sample. Got one number from {self.loss.name}: let it return values of "
                "shape (n,), of which Keras takes the mean."
            )
        return keras.ops.mean(losses, axis=tuple(range(1, rank))) if rank > 1 else losses


def _copied(loss: Any) -> Any:
    """A shallow copy. ``copy.copy`` would save and load it."""
    copied = object.__new__(type(loss))
    copied.__dict__.update(vars(loss))
    return copied


def times(sample_weight: Any, factor: Any) -> Any:
    """Sample weights, None or any structure, times a factor of shape (n,) or None."""
    if factor is None:
        return sample_weight
    if sample_weight is None:
        return factor

    def scaled(weight: Any) -> Any:
        weight = keras.ops.cast(weight, factor.dtype)
        return weight * keras.ops.reshape(factor, (-1,) + (1,) * (len(weight.shape) - 1))

    return keras.tree.map_structure(scaled, sample_weight)
