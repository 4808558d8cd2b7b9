"""``sync``: all replicas average their gradients in each step. Processes of a gloo group, each with all weights."""

import os
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch.distributed as dist

from benchmarks.common.data import Data
from benchmarks.common.processes.ranks import in_ranks, join_group
from benchmarks.distributed.training.replica import Batch, Checkpoint, Replica, RMSProp, Team, TeamBatch
from benchmarks.distributed.training.task import Told, Training, facts_of
from prunedata import Pruner
from prunedata.adapters.torch.ranks import Ranks, compare
from prunedata.run.epoch import Epoch
from prunedata.run.waiting import SharedBatches

__all__ = ["Started", "launched", "train_as_rank", "train_in_step"]

ADVICE = " Run the same command again: with --checkpoint it goes on from the last epoch that ended."
Started = Callable[[dict[str, int]], None]
"""Is told the name and the process id of all that train, once they do."""


class BatchRanks(Ranks):
    """Ranks that share batches: each loss is held against the mean of the whole batch, as in one process.

    They merge what they observed at the end of each epoch.
    """

    def __init__(self, pruner: Pruner, batch: int) -> None:
        super().__init__(pruner, settings=())
        self._shared = SharedBatches(batch, shuffle=True)

    def begin_epoch(self, epoch: Epoch) -> None:
        """Say how they share an epoch: its order is cut into batches, and each rank has its part of each."""
        super().begin_epoch(epoch)
        self._pruner.share_batches(self._shared)


def train_in_step(
    task: Training, data: Data, checkpoint: Path | None = None, started: Started | None = None
) -> dict[str, Any]:
    """Train, each rank in a process of its own, and return the facts of the run.

    With ``checkpoint`` the run is saved at the end of each epoch, and goes on from there if the file exists. A process
    that torchrun started is one of the ranks, and starts no others.

    Raises
    ------
    RankFailed
        Naming the rank: soon after it was killed, or ``task.within`` seconds after it stopped answering.
    """
    if launched():
        return _train_as_launched(task, data, checkpoint)
    with TemporaryDirectory() as folder:
        begun = Path(folder) / "begun"

        def tell(ranks: list[Any]) -> None:
            while not begun.exists() and all(rank.exitcode is None for rank in ranks):
                time.sleep(0.01)
            if started is not None:
                started({f"rank {place}": rank.pid for place, rank in enumerate(ranks)})

        given = task, data, checkpoint, begun
        found: dict[str, Any] = in_ranks(
            task.team, train_as_rank, *given, within=task.within, started=tell, advice=ADVICE
        )
    return found


def launched() -> bool:
    """Whether torchrun, or whoever sets the same variables, started this process as one of several ranks."""
    return {"RANK", "WORLD_SIZE"} <= os.environ.keys()


def _train_as_launched(task: Training, data: Data, checkpoint: Path | None) -> dict[str, Any]:
    rank, size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    if size != task.team:
        raise ValueError(
            f"Expected {task.team} processes: {task.workers} workers times {task.replicas} replicas. Got {size} from "
            "the launcher: give it as many, or --workers and --replicas as many as it starts."
        )
    join_group(rank, size, task.within)
    try:
        return train_as_rank(task, data, checkpoint)
    finally:
        dist.destroy_process_group()


def train_as_rank(task: Training, data: Data, checkpoint: Path | None, begun: Path | None = None) -> dict[str, Any]:
    """Train as a rank of the group that this process is in."""
    team = Team(task.within)
    replica = Replica(task, data, team.rank)
    pruner = task.pruner(len(data.train), data.classes)
    optimiser = RMSProp(replica.weights(), task.learning_rate)
    if team.size > 1:
        first = {"weights": zlib.crc32(optimiser.weights.tobytes()), "data": data.name, "samples": len(data.train)}
        compare(asdict(task) | first)
        pruner.join(BatchRanks(pruner, task.team_batch))
    held = Checkpoint.load(checkpoint) if checkpoint else None
    if held is not None:
        optimiser.weights, optimiser.average = held.weights, held.average
        pruner.load_state_dict(held.run)
        replica.load_buffers(held.buffers)
    replica.load_weights(optimiser.weights)
    team.add_up(np.zeros(1, np.float32))  # all are there
    since = time.time()
    if begun is not None and team.rank == 0:
        begun.touch()
    told = Told(parts=replica.parts.seconds)
    with ThreadPoolExecutor(1) as beside:
        while pruner.next_epoch < task.epochs:
            for whole, batch in _ahead(beside, _batches(pruner, task.team_batch), replica, team):
                _step(replica, team, optimiser, pruner, whole, batch, told)
            with replica.parts("pruning"):
                pruner.end_epoch()
            if checkpoint and team.rank == 0:
                Checkpoint(optimiser.weights, optimiser.average, pruner.state_dict(), replica.buffers()).save(
                    checkpoint
                )
    visits = [record["observed"] for record in pruner.history]
    return facts_of(task, data, visits, [told], started=since, accuracy=replica.accuracy(), staleness=[])


def _batches(pruner: Pruner, size: int) -> Iterator[TeamBatch]:
    epoch = pruner.begin_epoch()
    for number, ids in enumerate(epoch.batches(size)):
        yield TeamBatch(ids, None if epoch.weights is None else epoch.weights[ids], epoch.number, number)


def _ahead(
    beside: ThreadPoolExecutor, batches: Iterator[TeamBatch], replica: Replica, team: Team
) -> Iterator[tuple[TeamBatch, Batch]]:
    """Make this rank's part of each batch while the step before is computed."""

    def make(whole: TeamBatch) -> tuple[TeamBatch, Batch]:
        return whole, replica.batch(team.mine(whole.ids), whole.epoch, whole.number)

    coming = None
    for whole in chain(batches, (None,)):
        ready, coming = coming, None if whole is None else beside.submit(make, whole)
        if ready is not None:
            with replica.parts("wait"):
                item = ready.result()
            yield item


def _step(
    replica: Replica, team: Team, optimiser: RMSProp, pruner: Pruner, whole: TeamBatch, batch: Batch, told: Told
) -> None:
    size = len(whole.ids)
    gradient, losses = replica.gradient(batch, size, None if whole.weights is None else team.mine(whole.weights))
    with replica.parts("average"):
        # With the sum of the losses behind it: one exchange is enough.
        summed = team.add_up(np.append(gradient, losses.sum(dtype=np.float32)))
    with replica.parts("update"):
        optimiser.step(summed[:-1])
        replica.load_weights(optimiser.weights)
    with replica.parts("pruning"):
        if len(losses):
            pruner.observe(losses, team.mine(whole.ids))
    told.curve.append((time.time(), float(summed[-1]) / size, size))
