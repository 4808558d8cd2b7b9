"""The pruner's state in a checkpoint folder of the Trainer's, one file for each process."""

from pathlib import Path
from typing import Any

import torch

from prunedata.adapters.huggingface.rate import Change
from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner

__all__ = ["load", "save"]


def _path(folder: str, rank: int) -> Path:
    return Path(folder) / f"pruner_{rank}.pt"


def save(folder: str, rank: int, pruner: Pruner, changes: list[Change]) -> None:
    """Save where a run stands, and how the number of its steps has changed."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    state = {"pruner": pruner.state_dict(), "changes": [list(change) for change in changes]}
    torch.save(state, _path(folder, rank))


def load(folder: str, rank: int, pruner: Pruner) -> list[Change]:
    """Let a run go on from where it was saved. Raises :class:`PrunedataError` if nothing was, or it is of another."""
    path = _path(folder, rank)
    if not path.is_file():
        raise PrunedataError(
            f"Expected the pruner's state in the checkpoint, {path}. Got none: go on from a checkpoint that a trainer "
            "with PruneTrainerMixin saved, by as many processes and without save_only_model."
        )
    state: dict[str, Any] = torch.load(path, weights_only=True)
    pruner.load_state_dict(state["pruner"])
    return [Change(*change) for change in state["changes"]]
