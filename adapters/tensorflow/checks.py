"""Check that the position of a sample in a ``tf.data.Dataset`` can be its id.

TensorFlow has no public way to list the stages of a dataset. They are found by attributes that have existed since 2.0;
a stage that is not found is not checked.
"""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner


def stages(dataset: Any) -> Iterator[Any]:
    """Yield a dataset and all datasets that it is made from, the last stage first."""
    pending = [dataset]
    while pending:
        stage = pending.pop()
        yield stage
        # A reader of files has its interleaving inside.
        inner = getattr(stage, "_impl", None)
        pending += stage._inputs() if inner is None else [inner]


def check_dataset(dataset: Any, pruner: Pruner) -> None:
    """Raise :class:`PrunedataError` unless each pass gives the pruner's samples one by one, in the same order."""
    if not isinstance(dataset, tf.data.Dataset):
        raise PrunedataError(
            f"Expected a tf.data.Dataset. Got {type(dataset).__name__}: make one whose elements are your samples, as "
            "tf.data.Dataset.from_tensor_slices(arrays) does."
        )
    for stage in stages(dataset):
        if hasattr(stage, "pruner"):
            raise PrunedataError("Expected a dataset that is not wrapped yet. Got the result of wrap().")
        _check_order(stage)
    _check_size(dataset, pruner)


def _check_size(dataset: Any, pruner: Pruner) -> None:
    size = int(dataset.cardinality())
    if size == tf.data.INFINITE_CARDINALITY:
        raise PrunedataError(
            "Expected a dataset that ends. Got one with repeat(): an epoch is one pass over the kept samples, "
            "and `for epoch in pruner.epochs():` repeats it."
        )
    if size == pruner.samples:
        return
    refuse_batches(dataset)
    if size == tf.data.UNKNOWN_CARDINALITY:
        return
    raise PrunedataError(
        f"Expected a dataset of {pruner.samples} samples, as the Pruner has. Got one of {size}: "
        "build the Pruner with int(dataset.cardinality())."
    )


def refuse_batches(dataset: Any) -> None:
    """Raise :class:`PrunedataError` if an element of a dataset is a batch."""
    if _is_batched(dataset):
        raise PrunedataError(
            f"Expected a dataset of samples. Got one of batches, {dataset.element_spec}: call wrap() first and batch() "
            "on its result."
        )


def _is_batched(dataset: Any) -> bool:
    for stage in stages(dataset):
        name = type(stage).__name__
        # These most often split batches into samples.
        if name in ("_UnbatchDataset", "_FlatMapDataset") or "Interleave" in name:
            return False
        if name in ("_BatchDataset", "_ParallelBatchDataset", "_PaddedBatchDataset", "_WindowDataset"):
            return True
    return False


def _check_order(stage: Any) -> None:
    name, why = type(stage).__name__, None
    if name == "_ShuffleDataset" and not _is_fixed(stage):
        why = (
            "shuffle(), which gives another order in each pass or each run. Shuffle after wrap(), so that the ids are "
            "shuffled, too. (list_files() also shuffles: use list_files(..., shuffle=False).)"
        )
    elif name == "_DirectedInterleaveDataset" and not all(map(_is_fixed, _draws(stage))):
        why = (
            "sample_from_datasets(), which draws in another order in each pass or each run. Give it a seed, and leave "
            "out rerandomize_each_iteration."
        )
    elif _is_unordered(stage):
        why = "deterministic=False, with which the order depends on timing. Leave it out."
    elif "Interleave" in name and _number(getattr(stage, "_cycle_length", None)) == tf.data.AUTOTUNE:
        why = (
            "an interleaving whose width depends on the machine. Give cycle_length, or num_parallel_reads, as a "
            "number, and keep it for the whole run."
        )
    if why is not None:
        raise PrunedataError(f"Expected the same order in each pass, as a sample's position is its id. Got {why}")


def _is_unordered(stage: Any) -> bool:
    if stage.options().deterministic is False or getattr(stage, "_deterministic", None) == "false":
        return True
    if "ParallelInterleave" not in type(stage).__name__:
        return False
    # The object does not keep its arguments, but its graph does, which is small, as it reads files.
    variant, ignore_state = tf.data.experimental.to_variant(stage), 1
    graph = tf.raw_ops.DatasetToGraphV2(input_dataset=variant, external_state_policy=ignore_state)
    nodes = tf.compat.v1.GraphDef.FromString(graph.numpy()).node
    return any(node.attr["deterministic"].s == b"false" for node in nodes if "deterministic" in node.attr)


def _draws(mixture: Any) -> list[Any]:
    """Return the random numbers by which a mixture chooses the dataset of its next sample."""
    return [stage for stage in stages(mixture._inputs()[0]) if type(stage).__name__ == "_RandomDataset"]


def _is_fixed(stage: Any) -> bool:
    """Return whether a shuffle, or random numbers, are the same in every pass: they have a seed, and are kept."""
    seeds = (_number(getattr(stage, "_seed", None)), _number(getattr(stage, "_seed2", None)))
    changes = getattr(stage, "_reshuffle_each_iteration", getattr(stage, "_rerandomize", True))
    return not changes and seeds != (0, 0)


def _number(tensor: Any) -> int | None:
    return None if tensor is None else int(tensor)
