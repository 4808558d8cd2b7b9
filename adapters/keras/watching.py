"""Watch ``fit`` of a Keras model in the user's script, for ``prunedata watch``, without changing its weights."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils

from prunedata.adapters.keras.losses import logits_of, sample_losses, weighed
from prunedata.adapters.keras.model import PruneMixin
from prunedata.adapters.keras.recorders import recorder_for
from prunedata.errors import PrunedataError
from prunedata.run.adapter import Adapter, Delivery
from prunedata.run.epoch import Epoch
from prunedata.run.pruner import Pruner

__all__ = ["watch"]


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
    replicas = getattr(getattr(model, "distribute_strategy", None), "num_replicas_in_sync", 1)
    if replicas > 1 or keras.distribution.distribution() is not None:
        raise PrunedataError("it trains on several devices: on one, without a distribution, it is watched")
    given = call.bound()
    x, y, weights, held_out = given["x"], given["y"], given["sample_weight"], given["validation_data"]
    if y is None or not array_slicing.can_slice_array(keras.tree.flatten(x)[0]):
        raise PrunedataError(f"fit() trains on a {type(x).__name__}, whose samples have no places: pass it arrays")
    if given["validation_split"] and held_out is None:
        (x, y, weights), held_out = array_slicing.train_validation_split((x, y, weights), given["validation_split"])
        held_out = data_adapter_utils.pack_x_y_sample_weight(*held_out)
    samples, epochs = len(keras.tree.flatten(x)[0]), given["epochs"] - given["initial_epoch"]
    run = session.begin(samples, epochs, dataset=_Arrays(x, y))
    watched = _Fit(session, run.pruner)
    callbacks = given["callbacks"]
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.append(watched)
    else:
        listed = callbacks if isinstance(callbacks, list | tuple) else [] if callbacks is None else [callbacks]
        callbacks = [*listed, watched]
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
        run.keep_previews()

    return end


class _Given(Adapter):
    """Says how many samples ``fit`` gave in the open epoch."""

    by_weight = True

    def begin_epoch(self, epoch: Epoch) -> None:
        self.delivery = Delivery(epoch.number)


class _Fit(keras.callbacks.Callback):  # type: ignore[misc]
    """Opens and ends the run's epochs with those of ``fit``; where that fails it watches no longer."""

    def __init__(self, session: Any, pruner: Pruner) -> None:
        super().__init__()
        self._session, self._pruner, self._stopped = session, pruner, False
        self.recorder, self._given = pruner.attach(recorder_for(pruner)), pruner.attach(_Given())
        self._waiting: Any = None
        if keras.backend.backend() == "torch":
            from prunedata.adapters.keras.on_torch import Waiting  # noqa: PLC0415 (one backend is in use)

            self._waiting = Waiting(self.recorder, self._losses_of)

    def _losses_of(self, y: Any, y_pred: Any) -> tuple[Any, Any]:
        return sample_losses(self.model, y, y_pred, None), logits_of(self.model, y_pred)

    def observe(self, ids: Any, y: Any, y_pred: Any) -> None:
        """Record the losses of a batch, without what samples weigh; on torch, where a step is Python, later."""
        if self._waiting is None or not self._waiting.add(ids, y, y_pred):
            self.recorder.add(ids, *self._losses_of(y, y_pred))

    def stop(self, error: Exception) -> None:
        """Watch no longer. A run that leaves out raises the error: it would go on with the weights of this epoch."""
        if self._pruner.leave_out != "nothing":
            raise error
        if not self._stopped:
            self._stopped = True
            self._session.say(f"watched no longer: {error}")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Open an epoch."""
        if not self._stopped:
            try:
                self._pruner.begin_epoch()
            except Exception as error:
                self.stop(error)

    def on_test_begin(self, logs: Any = None) -> None:
        """Stop the clock: validation is no training."""
        self._end_delivery()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """End the epoch."""
        self.close()

    def close(self) -> None:
        """End the open epoch with the losses that were recorded."""
        if self._stopped or not self._pruner.is_open:
            return
        self._end_delivery()
        try:
            if self._waiting is not None:
                self._waiting.flush()
            count = self.recorder.count
            if not count:
                raise PrunedataError("no compute_loss() was called in train_step(), so that nothing is known")
            self._pruner.skip(max(0, self._pruner.samples - count))
            self._pruner.end_epoch()
        except Exception as error:
            self.stop(error)

    def _end_delivery(self) -> None:
        delivery = self._given.delivery
        if delivery is not None and delivery.ended is None:
            delivery.end()


class _WatchedModel(PruneMixin):
    """A model whose batches have ids beside their x."""

    _prune_fit: Any = None

    def _symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        plain: Any = super(PruneMixin, self)
        plain._symbolic_build(None if iterator is None else _without_ids(iterator), data_batch)

    def train_step(self, *arguments: Any) -> Any:
        """As the model's, without the ids."""
        plain: Any = super(PruneMixin, self)
        *state, ((ids, x), *others) = arguments
        self._prune_recorder.waiting = ids
        try:
            return plain.train_step(*state, (x, *others))
        finally:
            self._prune_recorder.waiting = None

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """As the model's; in training the losses of the samples are recorded, without what samples weigh."""
        plain: Any = super(PruneMixin, self)
        ids, self._prune_recorder.waiting = self._prune_recorder.waiting, None
        trained = training and ids is not None
        with weighed(self, self._prune_recorder.weights_of(ids) if trained else None):
            loss = plain.compute_loss(x, y, y_pred, sample_weight, training)
        if trained:
            try:
                self._prune_fit.observe(ids, y, y_pred)
            except Exception as error:
                self._prune_fit.stop(error)
        return loss


def _without_ids(batches: Any) -> Iterator[tuple[Any, Any, Any]]:
    for first, last, data in batches:
        yield first, last, [(x, *others) for (_, x), *others in data]


class _Arrays:
    """The arrays of ``fit`` as a data set."""

    def __init__(self, x: Any, y: Any) -> None:
        self._x, self._y = x, y

    def __len__(self) -> int:
        return len(keras.tree.flatten(self._x)[0])

    @property
    def targets(self) -> Any:
        """What is trained on: if it can only be classes, a run compares samples within them."""
        return self._y

    def __getitem__(self, sample: int) -> Any:
        x, y = (keras.tree.map_structure(lambda part: _row(part, sample), part) for part in (self._x, self._y))
        if isinstance(y, np.ndarray) and y.ndim == 1 and y.size > 1 and set(y.tolist()) == {0, 1}:
            y = int(np.argmax(y))  # one hot
        return {**x, "label": y} if isinstance(x, dict) else (x, y)


def _row(part: Any, sample: int) -> Any:
    if hasattr(part, "iloc"):
        return part.iloc[sample]
    return keras.ops.convert_to_numpy(part[sample])
