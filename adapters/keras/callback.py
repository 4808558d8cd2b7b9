"""The callback: ``fit`` opens and ends the epochs of a run; and the wrapped dataset that it comes with."""

from typing import Any

import keras
import tensorflow as tf

from prunedata.adapters.keras.fit import pruner_of, replicas_of
from prunedata.adapters.keras.recorders import recorder_for
from prunedata.adapters.tensorflow.checks import stages
from prunedata.adapters.tensorflow.dataset import Gate
from prunedata.errors import PrunedataError, SkippedSamples
from prunedata.findings.monitor import Mode, is_lower_better, monitored
from prunedata.run.pruner import Pruner


class PruneCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Opens an epoch of the pruner with each epoch of ``fit``, and ends it with the losses that the model recorded.

    Parameters
    ----------
    pruner : Pruner
        The run. ``fit(epochs=pruner.schedule.epochs, initial_epoch=pruner.next_epoch)`` trains its remaining epochs.
    monitor : str, optional
        The name of the validation figure in Keras's logs, such as ``"val_accuracy"``: it is passed to
        ``pruner.validated`` in each epoch with a validation.
    mode : {"auto", "max", "min"}
        Whether a higher or a lower figure is better. ``"auto"`` infers it from the name, as Keras does: lower for a
        loss, higher for an accuracy. Any other name needs ``"max"`` or ``"min"``.

    Raises
    ------
    PrunedataError
        If Keras runs on a backend other than TensorFlow, torch and JAX. In ``fit``: if the model has no
        :class:`PruneMixin`, its epochs are not the pruner's, or several replicas or devices train.
    SkippedSamples
        At the end of an epoch in which kept samples were not trained on. If a callback stopped ``fit``, the epoch is
        left open instead, and the next ``fit`` continues it.
    """

    def __init__(self, pruner: Pruner, *, monitor: str | None = None, mode: Mode = "auto") -> None:
        super().__init__()
        self._monitor, self._lower, self._is_validated = monitor, is_lower_better(monitor, mode), False
        self.pruner, self.recorder, self.batch = pruner, pruner.attach(recorder_for(pruner)), None
        self._gate = pruner.attach(Gate(pruner.samples))
        self._training, self._expected = False, 0

    def lacks_only_its_end(self) -> bool:
        """Whether an epoch is open of which nothing is left to train on. The epoch goes on."""
        return self.pruner.is_open and int(self.pruner.begin_epoch().remaining.sum()) < (self.batch or 1)

    def on_train_begin(self, logs: Any = None) -> None:
        """Check that the model records."""
        if getattr(self.model, "_prune_recorder", None) is not self.recorder:
            raise PrunedataError(
                f"Expected a model with PruneMixin: class Model(PruneMixin, keras.Model). Got {type(self.model)}."
            )
        if tf.distribute.get_strategy().num_replicas_in_sync > 1 or replicas_of(self.model) > 1:
            raise PrunedataError(
                "Expected one replica. Got several, which do not collect the losses of the whole batch: remove "
                "TensorFlow's strategy, or train on several devices with PyTorch."
            )
        if keras.distribution.distribution() is not None:
            raise PrunedataError(
                "Expected one device. Got a Keras distribution, whose devices do not collect the losses of the whole "
                "batch: remove it, or train on several devices with PyTorch."
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Open the epoch, or go on with the one that is open. Raises ``NotInEpoch`` if all are done."""
        current = self.pruner.begin_epoch()
        if current.number != epoch:
            raise PrunedataError(
                f"Expected epoch {current.number}, the pruner's epoch. Got epoch {epoch} from fit: use "
                "fit(epochs=pruner.schedule.epochs, initial_epoch=pruner.next_epoch)."
            )
        if self.batch is not None and current.kept < self.batch:
            raise PrunedataError(
                f"Expected at least one batch of {self.batch} samples in each epoch, as batch() has drop_remainder. "
                f"Got {current.kept} samples in epoch {epoch}, which would train on nothing: batch() without "
                "drop_remainder, take smaller batches, or prune less."
            )
        left = int(current.remaining.sum())
        dropped = 0 if self.batch is None else left % self.batch  # the user drops what is no full batch
        self._gate.delivery.left_out = dropped
        self._training, self._expected = True, left - dropped

    def on_test_begin(self, logs: Any = None) -> None:
        """Stop the clock: validation is no training."""
        self._stop()
        self._is_validated = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """End the epoch."""
        self._stop()
        validated, self._is_validated = self._is_validated, False
        if validated and self._monitor is not None:
            self.pruner.validated(monitored(logs or {}, self._monitor), lower_is_better=self._lower)
        try:
            self.pruner.end_epoch()
        except SkippedSamples:
            if not self.model.stop_training:
                raise

    def _stop(self) -> None:
        if self._training and self.recorder.count >= self._expected:
            self._gate.delivery.end()
        self._training = False


def check_call(x: Any, arguments: dict[str, Any], pruner: Pruner | None) -> None:
    """Raise for a wrapped dataset without its callback, a callback without its dataset, or unsupported arguments."""
    found = pruner_of(x)
    if found is not pruner:
        raise PrunedataError(
            "Expected a pruned dataset and PruneCallback(pruner) among the callbacks, of one pruner. "
            f"Got {_named(found, 'dataset')} and {_named(pruner, 'callback')}."
        )
    if pruner is None:
        return
    spec = x.element_spec
    if not (isinstance(spec, tuple) and len(spec) == 2 and getattr(spec[0], "dtype", None) == tf.int64):
        raise PrunedataError(
            "Expected batches of (ids, data), where data is (x, y) or (x, y, weights). "
            f"Got {spec}. Keep the ids in map(): map(lambda id, sample: (id, parse(sample)))."
        )
    if len(spec[0].shape) != 1:
        raise PrunedataError(
            f"Expected batches, with ids of shape (n,). Got ids of shape {spec[0].shape}: use batch()."
        )
    if int(x.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise PrunedataError("Expected a dataset that ends. Got one with repeat(): fit(epochs=...) repeats it.")
    steps = arguments.get("steps_per_epoch")
    if steps is not None:
        raise PrunedataError(
            f"Expected no steps_per_epoch. Got {steps}: an epoch has as many steps as the samples that it keeps make, "
            "and Keras counts them. Leave it out."
        )
    if arguments.get("class_weight") is not None:
        raise PrunedataError(
            "Expected no class_weight. Got one: yield sample weights from the dataset, (x, y, weights)."
        )


def _named(pruner: Pruner | None, what: str) -> str:
    return f"no pruned {what}" if pruner is None else f"a {what} of the Pruner at {id(pruner):#x}"


def sized(dataset: Any, samples: int) -> Any:
    """Return the same dataset with the greatest number of batches of an epoch as its length for Keras.

    Of a dataset whose length it does not know, Keras takes the length of the first epoch for that of all, and cuts
    longer ones off. Of one with too large a length it begins a step that has no data, which draws random numbers.
    """
    known = int(dataset.cardinality())
    return dataset if known >= 0 else _Sized(dataset, _most_batches(dataset, samples))


def _most_batches(dataset: Any, samples: int) -> int:
    sizes = []
    for stage in stages(dataset):
        name = type(stage).__name__
        if hasattr(stage, "pruner"):
            break
        if "Batch" in name and name not in ("_BatchDataset", "_ParallelBatchDataset", "_PaddedBatchDataset"):
            return samples
        if hasattr(stage, "_batch_size"):
            sizes.append(int(stage._batch_size))
    if len(sizes) != 1:
        return samples
    drops = dataset.element_spec[0].shape[0] is not None  # a size is fixed if what is left over is dropped
    return max(samples // sizes[0], 1) if drops else -(-samples // sizes[0])


class _Sized(tf.data.Dataset):  # type: ignore[misc]
    def __init__(self, dataset: Any, batches: int) -> None:
        self._dataset, self._batches = dataset, batches
        super().__init__(dataset._variant_tensor)

    def _inputs(self) -> list[Any]:
        return [self._dataset]

    @property
    def element_spec(self) -> Any:
        """As the dataset's."""
        return self._dataset.element_spec

    def cardinality(self) -> Any:
        """The most batches that an epoch can have."""
        return tf.constant(self._batches, tf.int64)
