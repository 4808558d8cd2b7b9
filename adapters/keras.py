"""Keras 3: a mixin for the model and a callback for ``fit``, over a dataset that ``prune`` wrapped.

``fit`` shows neither ids nor the losses of single samples to anyone. The mixin takes the ids off each batch before the
model sees it and keeps them beside the losses; the callback opens and ends the epochs.
"""

import inspect
from typing import Any

try:
    import keras
    import tensorflow as tf
except ImportError as error:
    raise ImportError(
        "prunedata.adapters.keras needs Keras 3 and TensorFlow: pip install 'prunedata[tensorflow]'"
    ) from error

from prunedata.adapters._keras_fit import check_call, sized, without_warning
from prunedata.adapters._keras_losses import sample_losses, times
from prunedata.adapters.tensorflow import prune
from prunedata.errors import PrunedataError, SkippedSamples
from prunedata.run.pruner import Pruner

__all__ = ["PruneCallback", "PruneMixin", "prune"]


def _recorder_for(pruner: Pruner) -> Any:
    backend = keras.backend.backend()
    if backend == "tensorflow":
        from prunedata.adapters._keras_tensorflow import Recorder  # noqa: PLC0415 (one backend is in use)

        return Recorder(pruner)
    if backend == "torch":
        from prunedata.adapters._keras_torch import TorchRecorder  # noqa: PLC0415

        return TorchRecorder(pruner)
    raise PrunedataError(f"Expected Keras with the tensorflow or the torch backend (KERAS_BACKEND). Got {backend!r}.")


class PruneMixin:
    """Lets ``fit`` train on pruned datasets: ``class Model(PruneMixin, keras.Model)``, in this order.

    The model trains as ever: on the same loss, with sample weights, metrics and regularisers as they are. Beside it
    one loss for each sample is taken from the same predictions, weighted by the sample weights, and recorded.
    Where the pruner's policy weighs samples (``Epoch.weights``), the loss that is trained on is weighted so too.
    """

    _prune_recorder: Any = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        bases = cls.__mro__
        if keras.Model in bases and bases.index(keras.Model) < bases.index(PruneMixin):
            raise PrunedataError(
                f"Expected class {cls.__name__}(PruneMixin, keras.Model). Got keras.Model first, which hides the mixin."
            )

    def fit(self, x: Any = None, *args: Any, **options: Any) -> Any:
        """As ``keras.Model.fit``; with a :class:`PruneCallback` among the callbacks, on a pruned dataset."""
        plain: Any = super()
        arguments = inspect.signature(plain.fit).bind(x, *args, **options).arguments
        callbacks = arguments.get("callbacks") or []
        callbacks = getattr(callbacks, "callbacks", callbacks)
        callback = next((each for each in callbacks if isinstance(each, PruneCallback)), None)
        check_call(x, arguments, None if callback is None else callback.pruner)
        recorder = None if callback is None else callback.recorder
        if recorder is not self._prune_recorder:
            self._prune_recorder = recorder
            self.train_function = None  # it was traced with the other recorder
        if callback is None:
            return plain.fit(x, *args, **options)
        if keras.backend.backend() == "torch":
            # Keras would take the ids of the first batch for x.
            spec = keras.tree.map_structure(lambda part: keras.KerasTensor(part.shape, part.dtype.name), x.element_spec)
            self._symbolic_build(data_batch=spec[1])  # type: ignore[attr-defined]
        callback.batch = x.element_spec[0].shape[0]
        if "shuffle" not in arguments:
            options["shuffle"] = False  # Keras warns that it cannot, though nobody asked
        with without_warning():
            return plain.fit(sized(x, callback.pruner.samples), *args, **options)

    def train_step(self, data: Any) -> Any:
        """As ``keras.Model.train_step``. A ``train_step`` of your own gets ``(ids, data)``: see :meth:`observe`."""
        plain: Any = super()
        if self._prune_recorder is None:
            return plain.train_step(data)
        ids, data = data
        self._prune_recorder.waiting = ids
        try:
            return plain.train_step(data)
        finally:
            self._prune_recorder.waiting = None

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """As ``keras.Model.compute_loss``; in training the losses of the samples are recorded."""
        plain: Any = super()
        recorder = self._prune_recorder
        if not training or recorder is None or recorder.waiting is None:
            return plain.compute_loss(x, y, y_pred, sample_weight, training)
        ids, recorder.waiting = recorder.waiting, None
        trained = times(sample_weight, recorder.weights_of(ids))
        loss = plain.compute_loss(x, y, y_pred, trained, training)
        self.observe(ids, sample_losses(self, y, y_pred, sample_weight))
        return loss

    def observe(self, ids: Any, losses: Any) -> None:
        """Record one loss for each sample, for a ``train_step`` or ``compute_loss`` that reckons its own.

        Parameters
        ----------
        ids : tensor of int64, shape (n,)
            The first part of what ``train_step`` gets.
        losses : tensor of float, shape (n,)
        """
        if self._prune_recorder is not None:
            self._prune_recorder.add(ids, losses)


class PruneCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Opens an epoch of the pruner with each epoch of ``fit``, and ends it with what the model recorded.

    Parameters
    ----------
    pruner : Pruner
        The run. ``fit(epochs=pruner.schedule.epochs, initial_epoch=pruner.next_epoch)`` trains what is left of it.

    Raises
    ------
    PrunedataError
        If Keras runs on a backend other than TensorFlow and torch. In ``fit``: if the model has no
        :class:`PruneMixin`, its epochs are not the pruner's, or several replicas train.
    SkippedSamples
        At the end of an epoch in which kept samples were not trained on. If ``fit`` was told to stop, the epoch is
        left open instead, and the next ``fit`` goes on with it.
    """

    def __init__(self, pruner: Pruner) -> None:
        super().__init__()
        self.pruner, self.recorder, self.batch = pruner, _recorder_for(pruner), None
        self._training, self._expected = False, 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Check that the model records."""
        if getattr(self.model, "_prune_recorder", None) is not self.recorder:
            raise PrunedataError(
                f"Expected a model with PruneMixin: class Model(PruneMixin, keras.Model). Got {type(self.model)}."
            )
        if tf.distribute.get_strategy().num_replicas_in_sync > 1 or _replicas(self.model) > 1:
            raise PrunedataError("Expected one replica. Got several: a strategy of TensorFlow's is not supported.")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Open the epoch, or go on with the one that is open. Raises ``NotInEpoch`` if all are done."""
        current = self.pruner.begin_epoch()
        if current.number != epoch:
            raise PrunedataError(
                f"Expected epoch {current.number}, where the pruner stands. Got epoch {epoch} from fit: use "
                "fit(epochs=pruner.schedule.epochs, initial_epoch=pruner.next_epoch)."
            )
        left = int(current.remaining.sum())
        dropped = 0 if self.batch is None else left % self.batch  # the user drops what is no full batch
        self.pruner.note_left_out(dropped)
        self.recorder.open(current)
        self._training, self._expected = True, left - dropped

    def on_test_begin(self, logs: Any = None) -> None:
        """Stop the clock: validation is no training."""
        self._stop()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """End the epoch."""
        self._stop()
        try:
            self.pruner.end_epoch()
        except SkippedSamples:
            if not self.model.stop_training:
                raise

    def _stop(self) -> None:
        if self._training:
            count = self.recorder.count
            self.pruner.note_delivered(count, exhausted=count >= self._expected)
        self._training = False


def _replicas(model: Any) -> int:
    strategy = getattr(model, "distribute_strategy", None)
    return 1 if strategy is None else int(strategy.num_replicas_in_sync)
