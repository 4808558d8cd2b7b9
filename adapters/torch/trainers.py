"""Which trainer iterates a pruned loader, found on the call stack: some need an adapter, or deal batches themselves."""

import inspect
from collections.abc import Iterator
from itertools import islice
from types import FrameType
from typing import Any

from prunedata.errors import PrunedataError

LIGHTNING = (
    "Expected DataPruning(pruner) among the callbacks of Lightning's Trainer. Got a Trainer without it, which would "
    "cut later epochs to the length of the first: write Trainer(callbacks=[DataPruning(pruner)]), with DataPruning "
    "from prunedata.adapters.lightning."
)
TRAINERS = {
    "lightning.pytorch.loops": LIGHTNING,
    "lightning.pytorch.trainer": LIGHTNING,
    "pytorch_lightning.loops": LIGHTNING,
    "pytorch_lightning.trainer": LIGHTNING,
    "transformers.trainer": (
        "Expected a Trainer of Hugging Face's with PruneTrainerMixin. Got one without it, which would cut later epochs "
        "to the length of the first: write class MyTrainer(PruneTrainerMixin, Trainer), with PruneTrainerMixin from "
        "prunedata.adapters.huggingface, and give it the pruner instead of a pruned loader."
    ),
}
"""The error for a trainer without its adapter, by the beginning of the name of the module that has its loop."""
BETWEEN = ("prunedata", "torch", "torchdata", "accelerate", "contextlib", "lightning", "pytorch_lightning", "tqdm")
"""Packages that may stand between a loop and the loader that it iterates."""
ACCELERATE = "accelerate.data_loader"
NEAR = 20  # frames between a batch sampler, or a forked worker's collate function, and accelerate's loop, at most


def missing_adapter() -> str | None:
    """Return the error message if the loop of a trainer that needs an adapter iterates the loader, or else None.

    A loop that the user wrote is no trainer's, also within a trainer's hook. Nothing is imported to find out.
    """
    for frame in _frames():
        module = _module(frame)
        for name, message in TRAINERS.items():
            if module == name or module.startswith(f"{name}."):
                return message
        wraps = frame.f_code.co_name in ("__iter__", "__next__")  # of something around the loader, whoever wrote it
        if not wraps and module.partition(".")[0] not in BETWEEN:
            return None
    return None


def is_accelerate() -> bool:
    """Return whether accelerate iterates the loader, and so sees to it that all processes get as many batches."""
    return _accelerates_loader("__iter__") is not None


def refuse_sharing(world: int, *, with_ids: bool, zero_weights: bool) -> None:
    """Raise :class:`PrunedataError` if accelerate shares the batches so that ids are lost or samples dealt twice.

    ``with_ids`` tells whether the loop expects ids beside its batches, as it gets them from accelerate. ``world`` is
    the number of ranks to which the pruned loader deals its samples. If some are delivered with the weight 0, the
    processes exchange in each step how many are not.
    """
    loop = _accelerates_loader("__iter__")
    if hasattr(loop, "_fetch_batches"):
        raise PrunedataError(
            "Expected each process to fetch its own batches. Got accelerate's dispatch_batches, which takes the ids of "
            "a batch apart from its samples: write Accelerator(dataloader_config=DataLoaderConfiguration("
            "dispatch_batches=False))."
        )
    if not with_ids and loop is not None:
        raise PrunedataError(
            "Expected with_ids=True for a loader that accelerate prepares, as it makes a loader of its own, which "
            "fetches a batch ahead. Got a loader without: write pruner.wrap(loader, with_ids=True), `for ids, batch in "
            "prepared:` and pruner.observe(losses, ids)."
        )
    shards = _accelerates_loader("_iter_with_split", "_iter_with_no_split")
    if zero_weights and shards is not None and not (shards.even_batches or shards.drop_last):
        raise PrunedataError(
            'Expected even_batches=True with holdout or leave_out="weight". Got even_batches=False, with which one '
            "process may have a batch more than the others: in each step all of them have to exchange how many samples "
            "are trained on."
        )
    if world > 1 and shards is not None:
        raise PrunedataError(
            "Expected a loader without a DistributedSampler, as accelerate deals its batches to the processes itself. "
            "Got one with it: write DataLoader(..., shuffle=True)."
        )


def dropped_by_accelerate(batches: int) -> int:
    """Return how many of the full batches accelerate drops, so that all processes get as many (``drop_last``)."""
    shards = _accelerates_loader("_iter_with_no_split")
    return 0 if shards is None or not shards.drop_last else batches % int(shards.num_processes)


def _accelerates_loader(*functions: str) -> Any:
    """Return the object of accelerate's that iterates the batch sampler in one of these functions, or None."""
    for frame in islice(_frames(), NEAR):
        if _module(frame) == ACCELERATE and frame.f_code.co_name in functions:
            return frame.f_locals["self"]
    return None


def _frames() -> Iterator[FrameType]:
    """Yield the frames on the call stack, from the caller outwards."""
    frame = inspect.currentframe()
    while frame is not None and (frame := frame.f_back) is not None:
        yield frame


def _module(frame: FrameType) -> str:
    return frame.f_globals.get("__name__") or ""
