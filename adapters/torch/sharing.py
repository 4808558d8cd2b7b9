"""What accelerate makes of a loader: it takes the batch sampler out and deals its batches to the processes."""

import inspect
from types import FrameType
from typing import Any

from prunedata.errors import PrunedataError

__all__ = ["cut_off", "is_accelerates", "refuse_sharing"]

MODULE = "accelerate.data_loader"
NEAR = 16
"""Frames between a batch sampler and what iterates it, at most."""


def _around(*functions: str) -> Any:
    """The object of accelerate's that iterates this batch sampler in one of these functions, or None."""
    frame: FrameType | None = inspect.currentframe()
    for _ in range(NEAR):
        if frame is None:
            break
        if frame.f_globals.get("__name__") == MODULE and frame.f_code.co_name in functions:
            return frame.f_locals["self"]
        frame = frame.f_back
    return None


def is_accelerates() -> bool:
    """Whether it is accelerate that iterates, which then sees to it that all processes get as many batches."""
    return _around("__iter__") is not None


def refuse_sharing(world: int, *, weighs: bool = False) -> None:
    """Raise :class:`PrunedataError` if ids would be lost on their way, or samples be dealt twice.

    Parameters
    ----------
    world : int
        How many ranks the loader deals to by itself.
    weighs : bool
        Whether samples are delivered that count nothing. The processes tell each other in each step what counts.
    """
    if _around("_fetch_batches") is not None:
        raise PrunedataError(
            "Expected each process to fetch its own batches. Got accelerate's dispatch_batches, which takes the ids of "
            "a batch apart from its samples: write Accelerator(dataloader_config=DataLoaderConfiguration("
            "dispatch_batches=False))."
        )
    shards = _around("_iter_with_split", "_iter_with_no_split")
    if weighs and shards is not None and not (shards.even_batches or shards.drop_last):
        raise PrunedataError(
            'Expected even_batches=True with holdout or leave_out="weight". Got even_batches=False, by which one '
            "process may have a batch more than the others, who have to say what counts of theirs: let accelerate even "
            "them out."
        )
    if world > 1 and shards is not None:
        raise PrunedataError(
            "Expected a loader without a DistributedSampler, as accelerate deals its batches to the processes itself. "
            "Got one with it: write DataLoader(..., shuffle=True)."
        )


def cut_off(batches: int) -> int:
    """How many full batches accelerate drops, so that all processes get as many, of a loader with ``drop_last``."""
    shards = _around("_iter_with_no_split")
    return 0 if shards is None or not shards.drop_last else batches % int(shards.num_processes)
