"""What a ``tf.data.Dataset`` is made of, and whether the position of a sample in it can be its id.

TensorFlow has no public way to ask. The stages are found by attributes that they have had since 2.0; one that is
not found is not judged.
"""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner

__all__ = ["check_dataset", "stages"]


def stages(dataset: Any) -> Iterator[Any]:
    """Yield a dataset and all that it is made from, the last stage first."""
    waiting = [dataset]
    while waiting:
        stage = waiting.pop()
        yield stage
        # A reader of files keeps its interleaving to itself.
        inner = getattr(stage, "_impl", None)
        waiting += stage._inputs() if inner is None else [inner]


def check_dataset(dataset: Any, pruner: Pruner) -> None:
    """Raise :class:`PrunedataError` unless each pass gives the pruner's samples, one an element, in one order."""
    if not isinstance(dataset, tf.data.Dataset):
        raise PrunedataError(f"Expected a tf.data.Dataset. Got {type(dataset).__name__}.")
    for stage in stages(dataset):
        if hasattr(stage, "pruner"):
            raise PrunedataError("Expected a dataset that is not yet pruned. Got the result of wrap().")
        _check_order(stage)
    _check_size(dataset, pruner)


def _check_size(dataset: Any, pruner: Pruner) -> None:
    size = int(dataset.cardinality())
    if size == tf.data.INFINITE_CARDINALITY:
        raise PrunedataError(
            "Expected a dataset that ends. Got one with repeat(): an epoch is one pass over the kept samples, "
            "and `for epoch in pruner.epochs():` repeats it."
        )
    batched = _is_batched(dataset)
    if size == pruner.samples or (size == tf.data.UNKNOWN_CARDINALITY and not batched):
        return
    if batched:
        raise PrunedataError(
            f"Expected a dataset of samples. Got one of batches, {dataset.element_spec}: call wrap() first and batch() "
            "on its result."
        )
    raise PrunedataError(
        f"Expected a dataset of {pruner.samples} samples, like the Pruner. Got one of {size}: "
        "build the Pruner with int(dataset.cardinality())."
    )


def _is_batched(dataset: Any) -> bool:
    for stage in stages(dataset):
        name = type(stage).__name__
        # What these give of a batch is their own business: samples, most often.
        if name in ("_UnbatchDataset", "_FlatMapDataset") or "Interleave" in name:
            return False
        if name in ("_BatchDataset", "_ParallelBatchDataset", "_PaddedBatchDataset", "_WindowDataset"):
            return True
    return False


def _check_order(stage: Any) -> None:
    name, why = type(stage).__name__, None
    if name == "_ShuffleDataset" and not _is_fixed(stage):
        why = (
            "shuffle(), which gives another order in each pass or each run. Shuffle behind wrap(), where the ids go "
            "along. (list_files() shuffles too: list_files(..., shuffle=False).)"
        )
    elif _is_unordered(stage):
        why = "deterministic=False, which lets whatever is ready go first. Leave it out."
    elif "Interleave" in name and _number(getattr(stage, "_cycle_length", None)) == tf.data.AUTOTUNE:
        why = (
            "an interleaving whose width depends on the machine. Say cycle_length, or num_parallel_reads, as a number, "
            "and keep it for the whole run."
        )
    if why is not None:
        raise PrunedataError(f"Expected the same order in each pass, as a sample's position is its id. Got {why}")


def _is_unordered(stage: Any) -> bool:
    if stage.options().deterministic is False or getattr(stage, "_deterministic", None) == "false":
        return True
    if "ParallelInterleave" not in type(stage).__name__:
        return False
    # It does not keep what it was given; its graph does. That is small, as it reads files.
    variant, ignore_state = tf.data.experimental.to_variant(stage), 1
    graph = tf.raw_ops.DatasetToGraphV2(input_dataset=variant, external_state_policy=ignore_state)
    nodes = tf.compat.v1.GraphDef.FromString(graph.numpy()).node
    return any(node.attr["deterministic"].s == b"false" for node in nodes if "deterministic" in node.attr)


def _is_fixed(shuffle: Any) -> bool:
    """Whether a shuffle gives one order in all passes of all runs: it must not reshuffle, and must have a seed."""
    seeds = (_number(getattr(shuffle, "_seed", None)), _number(getattr(shuffle, "_seed2", None)))
    return not getattr(shuffle, "_reshuffle_each_iteration", True) and seeds != (0, 0)


def _number(tensor: Any) -> int | None:
    return None if tensor is None else int(tensor)
