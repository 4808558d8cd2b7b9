"""A small run whose every commit is known: what a store holds tells how far its run had come, or that it is wrong."""

import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata import Pruner, Schedule
from prunedata.policies import RunningLoss
from prunedata.store.run_store import read_run
from prunedata.types import Array

__all__ = [
    "EPOCHS",
    "LAST",
    "SAMPLES",
    "SIZE",
    "go_on",
    "losses",
    "new_run",
    "position",
    "position_at",
    "pruner_state",
    "steps",
]

SAMPLES, SIZE, EPOCHS = 24, 8, 3
SCHEDULE = Schedule(EPOCHS, window=3, start=1, block=2, pruned_per_block=1)
Step = Callable[[], None]


def new_run(place: Path | None = None, *, resume: bool = False) -> Pruner:
    """The run, kept in a place or in memory."""
    return Pruner(
        SAMPLES, SCHEDULE, prune=0.25, policy=RunningLoss(), classes=4, batch_size=2, store=place, resume=resume,
        keys=range(SAMPLES),
    )  # fmt: skip


def losses(ids: npt.NDArray[np.integer], epoch: int) -> Array:
    """The loss of each sample in an epoch, shape (n,)."""
    found: Array = np.cos(ids * 0.7 + epoch) + 1
    return found


def steps(run: Pruner) -> list[Step]:
    """What is left to do in the open or next epoch: each step, without a commit of its own, leads to the next state."""
    epoch = run.begin_epoch()
    found: list[Step] = [functools.partial(_observe, run, ids, epoch.number) for ids in epoch.batches(SIZE)]
    return [*found, run.end_epoch]


def _observe(run: Pruner, ids: npt.NDArray[np.integer], epoch: int) -> None:
    run.observe(losses(ids, epoch), ids)


def go_on(run: Pruner, before: Callable[[int], object], after: Callable[[int], object], commits: int = 1 << 30) -> None:
    """Train a run on, and commit after each batch and each epoch; say the number of each commit ``before`` and after.

    The run must have been made, or resumed, at one of its commits.
    """
    at = position(pruner_state(run))
    if at is None:
        raise ValueError("Expected a run at one of its commits. Got another.")
    made = 0
    while at < LAST:
        for step in steps(run):
            if made == commits:
                return
            if step == run.end_epoch:  # this commits
                before(at + 1)
                step()
            else:
                step()
                before(at + 1)
                run.commit()
            at, made = at + 1, made + 1
            after(at)


def pruner_state(run: Pruner) -> dict[str, Any]:
    """Where a run stands, as a checkpoint has it."""
    return run.state_dict()


def position(checkpoint: dict[str, Any]) -> int | None:
    """How many commits a run had made that stands where a checkpoint says; None if it never stood there."""
    return _positions().get(_digest(checkpoint))


def position_at(place: Path) -> int | None:
    """As :func:`position`, of the run kept at a place, which is only read."""
    return position(read_run(place).state.to_checkpoint())


def _digest(checkpoint: dict[str, Any]) -> str:
    """Of everything but the seconds that it took."""
    state = dict(checkpoint["state"])
    state["history"] = [_without_seconds(record) for record in state["history"]]
    state["meter"] = _without_seconds(state["meter"])
    state["observed"] *= state["open"]  # between epochs it says nothing
    plain = json.dumps(state, sort_keys=True)
    arrays = b"".join(
        name.encode() + packed["dtype"].encode() + packed["data"]
        for name, packed in sorted(checkpoint["arrays"].items())
    )
    return hashlib.sha256(plain.encode() + arrays).hexdigest()


def _without_seconds(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in ("seconds", "overhead")}


@functools.cache
def _positions() -> dict[str, int]:
    run = new_run()
    first = run.state_dict()
    # A store that was created and not yet committed to has no arrays.
    found = {_digest(first): 0, _digest(first | {"arrays": {}}): 0}
    while run.next_epoch < EPOCHS:
        for step in steps(run):
            step()
            found[_digest(run.state_dict())] = 1 + max(found.values())
    return found


LAST = max(_positions().values())
"""The number of the last commit."""
