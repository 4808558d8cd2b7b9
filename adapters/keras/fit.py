"""What ``fit`` needs of us in any way that it is recorded, with TensorFlow or without."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import keras

from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner


def check_other(x: Any, what: str) -> None:
    """Raise for a wrapped dataset outside of training, because it has ids and lacks the pruned samples."""
    if pruner_of(x) is not None:
        raise PrunedataError(
            f"Expected a dataset that isn't pruned to {what} on. Got the result of wrap(): use the dataset before "
            "wrap(), with a map() of the samples alone, and the same batch()."
        )


def pruner_of(x: Any) -> Pruner | None:
    """Return the pruner of a wrapped dataset, None for any other data."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or not isinstance(x, tensorflow.data.Dataset):
        return None
    from prunedata.adapters.tensorflow.checks import stages  # noqa: PLC0415

    return next((stage.pruner for stage in stages(x) if hasattr(stage, "pruner")), None)


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
