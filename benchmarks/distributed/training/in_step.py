"""``sync``: all replicas average their gradients in each step. Processes of a gloo group, each with all weights."""

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch._C._distributed_c10d import FileStore

from benchmarks.common.data import Data
from benchmarks.distributed.training.checkpoint import Checkpoint
from benchmarks.distributed.training.curve import Told, facts_of
from benchmarks.distributed.training.replica import Batch, Replica
from benchmarks.distributed.training.rmsprop import RMSProp
from benchmarks.distributed.training.task import Training
from benchmarks.distributed.training.team import Team, TeamBatch
from prunedata import Pruner
from prunedata.adapters.torch.ranks import Ranks
from prunedata.run.ranks.waiting import SharedBatches

__all__ = ["RankFailed", "Started", "train_in_step"]

SOON = 3.0
"""Seconds in which the other ranks notice that one is gone."""

Started = Callable[[dict[str, int]], None]
"""Is told the name and the process id of all that train, once they do."""


class RankFailed(ConnectionError):
    """A process of the group was killed, hangs, or ended with an error; the others cannot go on without it."""


@dataclass(frozen=True)
class RankFinished:
    """What the first rank leaves when all is done."""

    told: Told
    visits: list[int]
    accuracy: float
    started: float


class BatchRanks(Ranks):
    """Ranks that share batches: each loss is held against the mean of the whole batch, as in one process.

    They merge what they observed at the end of each epoch.
    """

    def __init__(self, pruner: Pruner, batch: int) -> None:
        super().__init__(pruner, settings=())
        self._shared = SharedBatches(batch, shuffle=True)

    @property
    def shared(self) -> SharedBatches:
        """How they share an epoch: its order is cut into batches, and each rank has its part of each."""
        return self._shared


def train_in_step(
    task: Training, data: Data, checkpoint: Path | None = None, started: Started | None = None
) -> dict[str, Any]:
    """Train, each rank in a process of its own, and return the facts of the run.

    With ``checkpoint`` the run is saved at the end of each epoch, and goes on from there if the file exists.

    Raises
    ------
    RankFailed
        Naming the rank: soon after it was killed, or ``task.within`` seconds after it stopped answering.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # imported once, and not in each rank
    with TemporaryDirectory() as folder:
        left = Path(folder)
        ranks: list[Any] = [
            context.Process(target=_rank, args=(task, data, rank, left, checkpoint)) for rank in range(task.team)
        ]
        try:
            for rank in ranks:
                rank.start()
            if started is not None:
                while not (left / "begun").exists() and all(rank.exitcode is None for rank in ranks):
                    time.sleep(0.01)
                started({f"rank {place}": rank.pid for place, rank in enumerate(ranks)})
            _wait_for(ranks)
        finally:
            for rank in ranks:
                rank.kill()
                rank.join()
        done: RankFinished = torch.load(left / "done", weights_only=False)
    return facts_of(task, data, done.visits, [done.told], started=done.started, accuracy=done.accuracy, staleness=[])


def _wait_for(ranks: list[Any]) -> None:
    """Return when all ranks are done. Raise if one fails, naming the one because of which the others do."""
    running = {rank.sentinel: rank for rank in ranks}
    while running:
        for sentinel in wait(list(running)):
            rank = running.pop(sentinel)
            rank.join()
            if rank.exitcode:
                end = time.monotonic() + SOON  # the others fail of it, but for one that hangs
                while running and (left := end - time.monotonic()) > 0:
                    for other in wait(list(running), timeout=left):
                        running.pop(other).join()
                raise RankFailed(_told(ranks))


def _told(ranks: list[Any]) -> str:
    killed = [
        f"rank {place} was killed by {signal.Signals(-rank.exitcode).name}"
        for place, rank in enumerate(ranks)
        if rank.exitcode is not None and rank.exitcode < 0
    ]
    hanging = [f"rank {place} does not answer" for place, rank in enumerate(ranks) if rank.exitcode is None]
    failed = [f"rank {place} ended with the error that it printed" for place, rank in enumerate(ranks) if rank.exitcode]
    return (
        f"Expected {len(ranks)} ranks to train together. Got fewer: {', '.join(killed or hanging or failed)}. Run the "
        "same command again: with --checkpoint it goes on from the last epoch that ended."
    )


def _rank(task: Training, data: Data, rank: int, folder: Path, checkpoint: Path | None) -> None:
    store = FileStore(str(folder / "meeting"), task.team) if task.team > 1 else None
    replica, team = Replica(task, data, rank), Team(rank, task.team, store, task.within)
    pruner = task.pruner(len(data.train), data.classes)
    if task.team > 1:
        pruner.attach(BatchRanks(pruner, task.team_batch))
    optimiser = RMSProp(replica.weights(), task.learning_rate)
    held = Checkpoint.load(checkpoint) if checkpoint else None
    if held is not None:
        optimiser.weights, optimiser.average = held.weights, held.average
        pruner.load_state_dict(held.run)
        replica.load_buffers(held.buffers)
    replica.load_weights(optimiser.weights)
    team.add_up(np.zeros(1, np.float32))  # all are there
    started = time.time()
    if rank == 0:
        (folder / "begun").touch()
    told = Told(parts=replica.parts.seconds)
    with ThreadPoolExecutor(1) as beside:
        while pruner.next_epoch < task.epochs:
            for whole, batch in _ahead(beside, _batches(pruner, task.team_batch), replica, team):
                _step(replica, team, optimiser, pruner, whole, batch, told)
            with replica.parts("pruning"):
                pruner.end_epoch()
            if checkpoint and rank == 0:
                Checkpoint(optimiser.weights, optimiser.average, pruner.state_dict(), replica.buffers()).save(
                    checkpoint
                )
    told.buffers = replica.buffers()
    if rank == 0:
        visits = [record["observed"] for record in pruner.history]
        torch.save(RankFinished(told, visits, replica.accuracy(), started), folder / "done")
    team.leave()


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
            pruner.observe(team.mine(whole.ids), losses)
    told.curve.append((time.time(), float(summed[-1]) / size, size))
