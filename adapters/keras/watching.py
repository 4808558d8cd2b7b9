"""Watch ``fit`` of a Keras model in the user's script, for ``prunedata watch``, without changing its weights."""

from collections.abc import Callable
from math import prod
from typing import Any

import keras
import numpy as np
from keras.src.backend import get_keras_mask
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils

from prunedata.adapters.keras.fit import replicas_of, without_ids
from prunedata.adapters.keras.losses import logits_of, sample_losses
from prunedata.adapters.keras.model import PruneMixin
from prunedata.adapters.keras.recorders import recorder_for
from prunedata.adapters.watched.later import Waiting
from prunedata.errors import PrunedataError
from prunedata.run.adapter import Delivery
from prunedata.run.pruner import Pruner

OUTPUTS = "prunedata outputs"  # under this name they travel with a step's logs
SMALL_SAMPLE = 1 << 12  # the most numbers of a sample that waits


def watch(session: Any, model: Any, call: Any) -> Callable[[bool], None]:
    """Watch a call of ``model.fit()``, as :class:`prunedata.cli.watching.session.Watch` describes.

    Its arguments are changed: the arrays get one more, of the ids, which travels with the batches in any order.
    """
    if isinstance(model, PruneMixin):
        raise PrunedataError("the script prunes by itself")
    own = type(model)
    if session.settings.leave_out and not own.compute_loss.__module__.startswith("keras."):
        raise PrunedataError(
            f"{own.__name__} has a compute_loss() of its own, in which nothing weighs less: multiply its losses by "
            "self.factors(ids) in the script, by PruneMixin. Without --leave-out it is watched"
        )
    if replicas_of(model) > 1 or keras.distribution.distribution() is not None:
        raise PrunedataError("it trains on several devices: on one, without a distribution, it is watched")
    given = call.bound()
    x, y, weights, held_out = given["x"], given["y"], given["sample_weight"], given["validation_data"]
    if not array_slicing.can_slice_array(keras.tree.flatten(x)[0]):
        raise PrunedataError(f"fit() trains on a {type(x).__name__}, whose samples have no places: pass it arrays")
    if y is None:
        raise PrunedataError(
            "fit() is given no y, so that the loss of a sample is only known to the model: call self.observe(losses, "
            "ids) in its train_step in the script, by PruneMixin"
        )
    if given["validation_split"] and held_out is None:
        (x, y, weights), held_out = array_slicing.train_validation_split((x, y, weights), given["validation_split"])
        held_out = data_adapter_utils.pack_x_y_sample_weight(*held_out)
    samples, epochs = len(keras.tree.flatten(x)[0]), given["epochs"] - given["initial_epoch"]
    run = session.begin(samples, epochs, dataset=_Arrays(x, y))
    watched = _Fit(session, run.pruner, model)
    callbacks = given["callbacks"]
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.append(watched)
    else:
        callbacks = [*keras.tree.flatten(callbacks or []), watched]
    named = {"__module__": own.__module__, "__qualname__": own.__qualname__, "__doc__": own.__doc__}
    model.__class__ = type(own.__name__, (_WatchedModel, own), named)
    model._prune_recorder, model._prune_fit, model.train_function = watched.recorder, watched, None
    changed = {"x": (np.arange(samples), x), "y": y, "sample_weight": weights, "validation_data": held_out}
    call.args, call.options = (), given | changed | {"validation_split": 0.0, "callbacks": callbacks}

    def end(complete: bool) -> None:
        model.__class__ = own
        del model._prune_recorder, model._prune_fit
        model.train_function = None  # it was traced with the recorder
        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks.callbacks.remove(watched)
        watched.close()
        if complete:
            run.pruner.shorten()
        run.keep_previews()

    return end


class _Fit(keras.callbacks.Callback):  # type: ignore[misc]
    """Opens and ends the run's epochs with those of ``fit``; where that fails it watches no longer."""

    def __init__(self, session: Any, pruner: Pruner, model: Any) -> None:
        super().__init__()
        self._compiled = model  # self.model would give it back all of its state, on JAX
        self.by_metrics = _can_take_along(model)
        self._session, self._pruner, self._stopped = session, pruner, False
        self.recorder = pruner.attach(recorder_for(pruner))
        self._later = Waiting(self._record)

    def _losses_of(self, y: Any, y_pred: Any) -> tuple[Any, Any]:
        return sample_losses(self._compiled, y, y_pred, None), logits_of(self._compiled, y_pred)

    def observe(self, ids: Any, y: Any, y_pred: Any) -> None:
        """Record the losses of a batch within a step, without what samples weigh."""
        self.recorder.add(ids, *self._losses_of(y, y_pred))

    def take_along(self, logs: Any, ids: Any, y: Any, y_pred: Any) -> Any:
        """Return what a step returns, and with it what the losses of its batch are made of; or record them at once."""
        if isinstance(logs, dict) and all(map(_is_small, (y, y_pred))):
            return {**logs, OUTPUTS: (ids, (y, keras.ops.stop_gradient(y_pred)))}
        self.observe(ids, y, y_pred)
        return logs

    def take(self, logs: Any) -> None:
        """Keep what a step took along, away from Keras and the callbacks."""
        outputs = logs.pop(OUTPUTS, None) if isinstance(logs, dict) else None
        if outputs is None or self._stopped:
            return
        try:
            ids, parts = outputs
            self._later.add(ids, parts, self._losses_of)
        except Exception as error:
            self.stop(error)

    def _record(self, ids: Any, groups: Any, sizes: list[int]) -> None:
        """Record the losses of batches that have waited."""
        joined, ((losses_of, parts),) = self.recorder.joined, groups  # each batch is a step of its own
        self.recorder.add(joined(ids), *losses_of(*map(joined, zip(*parts, strict=True))), sizes=sizes)

    def guarded(self, do: Callable[..., object], *given: Any) -> None:
        if not self._stopped:
            try:
                do(*given)
            except Exception as error:
                self.stop(error)

    def stop(self, error: Exception) -> None:
        """Watch no longer. A run that leaves out raises the error: it would go on with the weights of this epoch."""
        if self._pruner.leave_out != "nothing":
            raise error
        if not self._stopped:
            self._stopped = True
            self._session.say(f"watched no longer: {error}")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.guarded(self._begin)

    def _begin(self) -> None:
        self.recorder.delivery = Delivery(self._pruner.begin_epoch().number)

    def on_test_begin(self, logs: Any = None) -> None:
        """Stop the clock: validation is no training."""
        self._end_delivery()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.close()

    def close(self) -> None:
        """End the open epoch with the losses that were recorded."""
        if self._pruner.is_open:
            self._end_delivery()
            self.guarded(self._end)

    def _end(self) -> None:
        self._later.flush()
        count = self.recorder.count
        if not count:
            raise PrunedataError(
                "no compute_loss() was called in train_step(), so that nothing is known: call self.observe(losses, "
                "ids) in it in the script, by PruneMixin"
            )
        self._pruner.skip(max(0, self._pruner.samples - count))
        self._pruner.end_epoch()

    def _end_delivery(self) -> None:
        delivery = self.recorder.delivery
        if delivery is not None and delivery.ended is None:
            delivery.end()


class _WatchedModel(PruneMixin):
    """A model whose batches have ids beside their x."""

    _prune_fit: Any = None

    def _symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        batches = None if iterator is None else without_ids(iterator, self._prune_split)
        super(PruneMixin, self)._symbolic_build(batches, data_batch)

    @staticmethod
    def _prune_split(batch: Any) -> tuple[Any, Any]:
        (ids, x), *others = batch
        return ids, (x, *others)

    def _prune_record(self, ids: Any, y: Any, y_pred: Any, sample_weight: Any) -> None:
        """Record the losses of a batch without what its samples weigh, unless outputs are taken along.

        Outputs with a mask are not: on JAX they lose it on their way out of ``compute_loss``.
        """
        outputs = [y_pred] if hasattr(y_pred, "shape") else keras.tree.flatten(y_pred)
        masked = any(get_keras_mask(each) is not None for each in outputs)
        if masked or not self._prune_fit.by_metrics:
            self._prune_recorder.waiting = None
            self._prune_fit.guarded(self._prune_fit.observe, ids, y, y_pred)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """As the model's; in training with what the losses of the samples are made of."""
        logs = super().compute_metrics(x, y, y_pred, sample_weight)
        ids, self._prune_recorder.waiting = self._prune_recorder.waiting, None
        if ids is None or not self._prune_fit.by_metrics:
            return logs
        try:
            return self._prune_fit.take_along(logs, ids, y, y_pred)
        except Exception as error:
            self._prune_fit.stop(error)
            return logs

    def make_train_function(self, force: bool = False) -> None:
        """As the model's; what a step took along stays here."""
        before = self.train_function
        super().make_train_function(force)
        own, fit = self.train_function, self._prune_fit
        if own is before or not fit.by_metrics:
            return

        def train_function(*arguments: Any) -> Any:
            result = own(*arguments)
            fit.take(result[0] if isinstance(result, tuple) else result)
            return result

        self.train_function = train_function


def _can_take_along(model: Any) -> bool:
    """Whether what the losses of a step are made of may be among its outputs, for later.

    A step of the user's own may compute no metrics, and of several steps in one call Keras returns the last one's. A
    loss of the user's own may need the weights of its step. On TensorFlow outputs cost more than a step that records.
    """
    keras_own = _is_of_keras(type(model).train_step) and all(map(_is_of_keras, keras.tree.flatten(model.loss)))
    return keras_own and keras.backend.backend() != "tensorflow" and model.steps_per_execution == 1


def _is_of_keras(given: Any) -> bool:
    return isinstance(given, str) or str(getattr(getattr(given, "fn", given), "__module__", "")).startswith("keras.")


def _is_small(values: Any) -> bool:
    shape = getattr(values, "shape", ())
    return len(shape) > 0 and None not in shape[1:] and prod(shape[1:]) <= SMALL_SAMPLE


class _Arrays:
    """The arrays of ``fit`` as a data set."""

    def __init__(self, x: Any, y: Any) -> None:
        self._x, self._y = x, y

    def __len__(self) -> int:
        return len(keras.tree.flatten(self._x)[0])

    @property
    def targets(self) -> Any:
        """What is trained on, one hot or in a column too: if it can only be classes, a run compares samples in them."""
        if keras.tree.is_nested(self._y):  # of several outputs
            return None
        y = np.asarray(self._y if hasattr(self._y, "iloc") else keras.ops.convert_to_numpy(self._y))
        y = y[:, 0] if y.shape[1:] == (1,) else y
        if y.dtype.kind not in "biuf" or y.ndim > 2 or not np.isin(y, (0, 1)).all():
            return y
        one_hot = y.ndim == 2 and (y.sum(1) == 1).all()
        return y.argmax(1) if one_hot else y.astype(np.uint8)

    def __getitem__(self, sample: int) -> Any:
        x, y = (keras.tree.map_structure(lambda part: _row(part, sample), part) for part in (self._x, self._y))
        if isinstance(y, np.ndarray) and y.ndim == 1 and y.size > 1 and set(y.tolist()) == {0, 1}:
            y = int(np.argmax(y))  # one hot
        return {**x, "label": y} if isinstance(x, dict) else (x, y)


def _row(part: Any, sample: int) -> Any:
    if hasattr(part, "iloc"):
        return part.iloc[sample]
    return keras.ops.convert_to_numpy(part[sample])
