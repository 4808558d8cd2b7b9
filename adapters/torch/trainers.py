"""Trainers that freeze an epoch's length: recognised by who iterates a loader, and refused without their adapter."""

import inspect
from types import FrameType

__all__ = ["trainer_that_iterates"]

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
"""What to say of a trainer, by the beginning of the name of the module that has its loop."""
BETWEEN = ("prunedata", "torch", "torchdata", "accelerate", "contextlib", "lightning", "pytorch_lightning", "tqdm")
"""Packages that may stand between a loop and the loader that it iterates."""


def trainer_that_iterates() -> str | None:
    """What to say if it is a trainer's loop that asks a pruned loader for its batches, or else None.

    A loop that the user wrote is none, also within a trainer's hook. Nothing is imported to find out.
    """
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        module = frame.f_globals.get("__name__") or ""
        for name, told in TRAINERS.items():
            if module == name or module.startswith(f"{name}."):
                return told
        wraps = frame.f_code.co_name in ("__iter__", "__next__")  # of something around the loader, whoever wrote it
        if not wraps and module.partition(".")[0] not in BETWEEN:
            return None
        frame = frame.f_back
    return None
