"""Keep ``fit`` from freezing the length of a wrapped dataset, or training on ids."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from prunedata.adapters.tensorflow.checks import stages
from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner


def check_call(x: Any, arguments: dict[str, Any], pruner: Pruner | None) -> None:
    """Raise for a wrapped dataset without its callback, a callback without its dataset, or unsupported arguments."""
    check_other(arguments.get("validation_data"), "validate")
    found = _pruner_of(x)
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


def check_other(x: Any, what: str) -> None:
    """Raise for a wrapped dataset outside of training, because it has ids and lacks the pruned samples."""
    if _pruner_of(x) is not None:
        raise PrunedataError(
            f"Expected a dataset that isn't pruned to {what} on. Got the result of wrap(): use the dataset before "
            "wrap(), with a map() of the samples alone, and the same batch()."
        )


def _pruner_of(x: Any) -> Pruner | None:
    if not isinstance(x, tf.data.Dataset):
        return None
    return next((stage.pruner for stage in stages(x) if hasattr(stage, "pruner")), None)


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


def end_epoch(model: Any, number: int, arguments: dict[str, Any]) -> None:
    """Do what ``fit`` does once the data of an epoch have run out: on JAX it fails if there are none from the start.

    So the epoch of a run that was stopped between its last batch and its end gets its validation figure.
    """
    callbacks, logs = arguments["callbacks"], {}
    if not isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = keras.callbacks.CallbackList(callbacks, model=model)
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(number)
    given = arguments.get("validation_data")
    if given is not None and model._should_eval(number, arguments.get("validation_freq", 1)):
        x, y, weights = keras.utils.unpack_x_y_sample_weight(given)
        size, steps = arguments.get("validation_batch_size"), arguments.get("validation_steps")
        options = {"batch_size": size, "steps": steps, "callbacks": callbacks, "return_dict": True}
        found = model.evaluate(x, y, sample_weight=weights, **options)
        logs = {f"val_{name}": value for name, value in found.items()}
    callbacks.on_epoch_end(number, logs)
    callbacks.on_train_end(logs)


def without_ids(
    batches: Any, split: Callable[[Any], tuple[Any, Any]], spec: Any = None
) -> Iterator[tuple[int, int, list[Any]]]:
    """Yield the batches without their ids, for Keras; then with a ``spec`` one with the shapes of the data.

    A pass has no batches if the resumed epoch was already observed to its end.
    """
    for first, last, data in batches:
        yield first, last, [split(batch)[1] for batch in data]
    if spec is not None:
        yield 0, 0, [keras.tree.map_structure(lambda part: keras.KerasTensor(part.shape, part.dtype.name), spec)]


def replicas_of(model: Any) -> int:
    """Return how many replicas of a model train, by TensorFlow's strategy."""
    return int(getattr(getattr(model, "distribute_strategy", None), "num_replicas_in_sync", 1))
