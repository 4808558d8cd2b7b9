"""The mixin: a model takes the ids off each batch and records the losses of its samples."""

import inspect
import warnings
from typing import Any

import keras

from prunedata.adapters.keras.fit import check_other, end_epoch, without_ids
from prunedata.adapters.keras.losses import labels_of, logits_of, sample_losses, weighed
from prunedata.errors import PrunedataError
from prunedata.types import AnyBase


class PruneMixin(AnyBase):  # type: ignore[misc]
    """Lets ``fit`` train on pruned datasets: ``class Model(PruneMixin, keras.Model)``, in this order.

    The model is trained on the same loss as without it; sample weights, metrics and regularizers apply. In addition,
    one loss for each sample is taken from the same predictions, weighted by the sample weights, and recorded.
    The model trains on the loss of the samples by their weights (``Epoch.loss_weights``).
    """

    _prune_recorder: Any = None
    _prune_spec: Any = None  # what the data of a batch look like, until Keras has looked at one of ``fit``

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        bases = cls.__mro__
        if keras.Model in bases and bases.index(keras.Model) < bases.index(PruneMixin):
            raise PrunedataError(
                f"Expected class {cls.__name__}(PruneMixin, keras.Model). Got keras.Model first, which hides the mixin."
            )

    def fit(self, x: Any = None, *args: Any, **options: Any) -> Any:
        """As ``keras.Model.fit``; with a :class:`PruneCallback` among the callbacks, on a pruned dataset."""
        # It needs TensorFlow, which a model that is watched does without.
        from prunedata.adapters.keras.callback import PruneCallback, check_call, sized  # noqa: PLC0415

        arguments = inspect.signature(super().fit).bind(x, *args, **options).arguments
        callbacks = arguments.get("callbacks") or []
        callbacks = getattr(callbacks, "callbacks", callbacks)
        callback = next((each for each in callbacks if isinstance(each, PruneCallback)), None)
        check_other(arguments.get("validation_data"), "validate")
        check_call(x, arguments, None if callback is None else callback.pruner)
        recorder = None if callback is None else callback.recorder
        if recorder is not self._prune_recorder:
            self._prune_recorder = recorder
            self.train_function = None  # it was traced with the other recorder
        if callback is None:
            return super().fit(x, *args, **options)
        run = callback.pruner
        if run.next_epoch == run.schedule.epochs <= arguments.get("initial_epoch", 0):
            list(run.epochs())  # none: it warns that the run has finished, where Keras trains nothing and says nothing
        callback.batch = x.element_spec[0].shape[0]
        if "shuffle" not in arguments:
            options["shuffle"] = False  # Keras warns that it cannot, though nobody asked
        if keras.backend.backend() == "jax" and callback.lacks_only_its_end():
            number = callback.pruner.next_epoch
            end_epoch(self, number, arguments)
            args, options = (), {**arguments, **options, "initial_epoch": number + 1}
            del options["x"]
        if keras.backend.backend() != "tensorflow":
            self._prune_spec = x.element_spec[1]
        with warnings.catch_warnings():  # what is missing at an epoch's end is an error of ours
            warnings.filterwarnings("ignore", "Your input ran out of data", UserWarning)
            return super().fit(sized(x, callback.pruner.samples), *args, **options)

    def _symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """As Keras's, which on torch and JAX builds the model from the first batch of ``fit``: here without its ids.

        It has to take that batch as it would without us: a DataLoader draws a random number with each pass, and a
        shuffle has another order in the next.
        """
        spec, self._prune_spec = self._prune_spec, None
        if spec is not None:
            iterator = without_ids(iterator, self._prune_split, spec)
        super()._symbolic_build(iterator, data_batch)

    def evaluate(self, x: Any = None, *args: Any, **options: Any) -> Any:
        """As ``keras.Model.evaluate``. Raise for a pruned dataset."""
        check_other(x, "evaluate")
        return super().evaluate(x, *args, **options)

    def predict(self, x: Any, *args: Any, **options: Any) -> Any:
        """As ``keras.Model.predict``. Raise for a pruned dataset."""
        check_other(x, "predict")
        return super().predict(x, *args, **options)

    def train_step(self, *arguments: Any) -> Any:
        """As the model's, which gets the data without their ids.

        One that a class with the mixin defines itself receives ``(ids, data)``: see :meth:`observe`. The arguments are
        ``data``, or on the JAX backend ``state`` and ``data``.
        """
        if self._prune_recorder is None:
            return super().train_step(*arguments)
        *state, batch = arguments
        self._prune_recorder.waiting, data = self._prune_split(batch)
        try:
            return super().train_step(*state, data)
        finally:
            self._prune_recorder.waiting = None

    @staticmethod
    def _prune_split(batch: Any) -> tuple[Any, Any]:
        """Return the ids of a batch, and what the model gets."""
        ids, data = batch
        return ids, data

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """As ``keras.Model.compute_loss``; in training the losses of the samples are recorded."""
        recorder = self._prune_recorder
        if not training or recorder is None or recorder.waiting is None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        ids = recorder.waiting
        with weighed(self, recorder.weights_of(ids)):
            loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        self._prune_record(ids, y, y_pred, sample_weight)
        return loss

    def _prune_record(self, ids: Any, y: Any, y_pred: Any, sample_weight: Any) -> None:
        """Record the losses of a batch that is trained on, once."""
        self._prune_recorder.waiting = None
        losses = sample_losses(self, y, y_pred, sample_weight)
        self.observe(losses, ids, logits_of(self, y_pred), labels_of(self, y))

    def observe(self, losses: Any, ids: Any, logits: Any = None, labels: Any = None) -> None:
        """Record one loss for each sample, for a ``train_step`` or ``compute_loss`` that computes its own.

        Parameters
        ----------
        losses : tensor of float, shape (n,)
        ids : tensor of int64, shape (n,)
            The first part of the data that ``train_step`` receives.
        logits : tensor of float, shape (n, classes), or (n,) for two classes, optional
            The outputs of the network, or its probabilities: see :meth:`prunedata.Pruner.observe`. With Keras's own
            step they are passed if the loss is a cross entropy over classes.
        labels : tensor of int, shape (n,), optional
            The labels of the samples, as they are trained on, -100 for none: see :meth:`prunedata.Pruner.observe`. With
            Keras's own step they are passed if the loss is the sparse cross entropy of one output.
        """
        if self._prune_recorder is not None:
            self._prune_recorder.add(ids, losses, logits, labels)

    def factors(self, ids: Any) -> Any:
        """Return the factors of the losses of a batch, for your own ``train_step`` or ``compute_loss``.

        As :meth:`prunedata.Epoch.factors`: train on the mean of the products, and :meth:`observe` the losses.

        Parameters
        ----------
        ids : tensor of int64, shape (n,)

        Returns
        -------
        tensor of float32, shape (n,), or float
            1 if all samples count alike.
        """
        weights = None if self._prune_recorder is None else self._prune_recorder.weights_of(ids)
        if weights is None:
            return 1.0
        weights, counting = weights[0], keras.ops.sum(keras.ops.cast(weights[1], weights[0].dtype))
        return weights * (keras.ops.cast(keras.ops.size(weights), weights.dtype) / keras.ops.maximum(counting, 1))
