"""The pruner's state in a checkpoint folder of the Trainer's, one file for each process."""

from pathlib import Path
from typing import Any

import torch

from prunedata.adapters.huggingface.rate import Change
from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner

__all__ = ["load", "save"]

SAME = ("per_device_train_batch_size", "gradient_accumulation_steps", "dataloader_drop_last", "world_size")
"""Arguments by which the steps of a run are counted."""


def _path(folder: str, args: Any) -> Path:
    return Path(folder) / f"pruner_{args.process_index}.pt"


def save(folder: str, args: Any, pruner: Pruner, changes: list[Change]) -> None:
    """Save where a run stands, and how the number of its steps has changed. ``args`` are the Trainer's."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    state = {
        "pruner": pruner.state_dict(),
        "changes": [list(change) for change in changes],
        "args": {name: getattr(args, name) for name in SAME},
    }
    torch.save(state, _path(folder, args))


def load(folder: str, args: Any, pruner: Pruner) -> list[Change]:
    """Let a run go on from where it was saved, and return how the number of its steps had changed.

    Raises
    ------
    PrunedataError
        If nothing was saved, or it is of another run or was saved with other steps.
    """
    path = _path(folder, args)
    if not path.is_file():
        raise PrunedataError(
            f"Expected the pruner's state in the checkpoint, {path}. Got none: go on from a checkpoint that a trainer "
            "with PruneTrainerMixin saved, by as many processes and without save_only_model."
        )
    state: dict[str, Any] = torch.load(path, weights_only=True)
    for name, saved in state["args"].items():
        if getattr(args, name) != saved:
            raise PrunedataError(
                f"Expected {name}={saved}, as the checkpoint was saved with. Got {getattr(args, name)}: steps are "
                "counted by it, so a run goes on with the one that it began with."
            )
    pruner.load_state_dict(state["pruner"])
    return [Change(*change) for change in state["changes"]]
