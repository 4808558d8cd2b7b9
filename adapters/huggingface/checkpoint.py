"""The pruner's state in a checkpoint folder of the Trainer's, one file for each process."""

from pathlib import Path
from typing import Any, NamedTuple

import torch

from prunedata.adapters.huggingface.steps import Change
from prunedata.errors import PrunedataError
from prunedata.run.pruner import Pruner

SAME = ("gradient_accumulation_steps", "dataloader_drop_last")
"""Arguments by which the steps of a run are counted, beside the size of a batch of all processes."""


class Stand(NamedTuple):
    """Where a run stands among its optimizer steps."""

    changes: tuple[Change, ...]  # how the number of its steps has changed
    began: int  # the step at which the open epoch began, or at which the next one does
    total: int  # how many steps the run has


def _path(folder: str, rank: int) -> Path:
    return Path(folder) / f"pruner_{rank}.pt"


def save(folder: str, args: Any, pruner: Pruner, stand: Stand) -> None:
    """Save the run's state, and where it stands among its steps. ``args`` are the Trainer's."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    state = {
        "pruner": pruner.state_dict(),
        "stand": stand._asdict() | {"changes": [list(change) for change in stand.changes]},
        "args": {name: getattr(args, name) for name in (*SAME, "per_device_train_batch_size", "world_size")},
    }
    torch.save(state, _path(folder, args.process_index))


def load(folder: str | None, args: Any, pruner: Pruner) -> Stand | None:
    """Let a run go on from where it was saved, and return where that is among its steps; None if it begins.

    Another number of processes may go on, each from the states of all that were saved. Without a folder the run begins.
    Raises :class:`PrunedataError` if nothing was saved, or it is of another run or was saved with other steps; or if a
    run that has begun is to begin.
    """
    if folder is None:
        if pruner.next_epoch:
            raise PrunedataError(
                f"Expected a run at its beginning. Got a pruner at epoch {pruner.next_epoch}: resume with "
                "train(resume_from_checkpoint=True), or train again with a new Pruner. For hyperparameter_search call "
                "wrap(trainer, make_pruner) on a Trainer without the mixin, with a function that returns a new Pruner "
                "for each trial."
            )
        return None
    rank = args.process_index
    state = _read(folder, rank if _path(folder, rank).is_file() else 0)
    _check(args, state["args"])
    ranks = state["args"]["world_size"]
    if ranks == args.world_size:
        pruner.load_state_dict(state["pruner"])
    else:
        pruner.load_state_dict([_read(folder, each)["pruner"] for each in range(ranks)])
    stand = state["stand"]
    return Stand(**stand | {"changes": tuple(Change(*change) for change in stand["changes"])})


def _read(folder: str, rank: int) -> dict[str, Any]:
    path = _path(folder, rank)
    if not path.is_file():
        raise PrunedataError(
            f"Expected the pruner's state in the checkpoint, {path}. Got none: go on from a checkpoint that a trainer "
            "with PruneTrainerMixin saved, without save_only_model, in a folder that all processes write to."
        )
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state


def _check(args: Any, saved: dict[str, Any]) -> None:
    for name in SAME:
        if getattr(args, name) != saved[name]:
            raise PrunedataError(
                f"Expected {name}={saved[name]}, as the checkpoint was saved with. Got {getattr(args, name)}: steps "
                "are counted by it, so a run goes on with the one that it began with."
            )
    size = saved["per_device_train_batch_size"] * saved["world_size"]
    if size != args.per_device_train_batch_size * args.world_size:
        fits = size % args.world_size == 0
        raise PrunedataError(
            f"Expected {size} samples in a batch of all processes, as the checkpoint was saved with. Got "
            f"per_device_train_batch_size={args.per_device_train_batch_size} and world_size={args.world_size}: steps "
            "are counted by it, so "
            + (f"set per_device_train_batch_size={size // args.world_size}." if fits else "take other processes.")
        )
