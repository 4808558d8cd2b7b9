"""A worker of ``async`` and ``mixed``: replicas in Ray actors, of which the first asks for batches and pushes."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from benchmarks.common.data import Data
from benchmarks.common.processes.ranks import join_group
from benchmarks.distributed.training.replica import Batch, Replica, Team, TeamBatch, Vector
from benchmarks.distributed.training.servers import Pushed, Servers
from benchmarks.distributed.training.task import Told, Training
from prunedata import Deal, Wait
from prunedata.adapters.ray import RayDealer

__all__ = ["NodeReplica"]

POLL = 0.005
"""Seconds until a node asks again, while the others still have the last batches of an epoch."""


Pulled = tuple[Vector, list[int]]
"""All weights, and the version of each server's part."""


@dataclass(frozen=True)
class InFlight:
    """A gradient that was pushed and not yet reported."""

    deal: Deal
    losses: Vector
    versions: list[int]
    pushed: Pushed


class NodeReplica:
    """What runs in a replica's process. Of a node's replicas the first leads, and the others follow.

    All replicas of a node are on one machine.
    """

    def __init__(self, task: Training, data: Data, node: int, rank: int) -> None:
        self._task, self._replica = task, Replica(task, data, node * task.team + rank)
        self._store: TCPStore | None
        self._rank, self._store = rank, None
        self._told = Told(parts=self._replica.parts.seconds)

    def pid(self) -> int:
        """For who wants to kill it."""
        return os.getpid()

    def meeting(self) -> int:
        """Open a place where the node's replicas meet; return its port."""
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._store = store
        return int(store.port)

    def join(self, port: int) -> None:
        """Meet the node's other replicas."""
        if self._rank:
            self._store = TCPStore("127.0.0.1", port)
        if self._task.team > 1:
            join_group(self._rank, self._task.team, self._task.within, self._store)
        self._team = Team(self._task.within)

    def train(self, name: int, dealer: RayDealer, servers: Servers) -> Told:
        """Train until the run is done."""
        with ThreadPoolExecutor(1) as beside:
            if self._rank:
                self._follow(beside)
            else:
                self._lead(beside, name, dealer, servers)
        self._told.buffers = self._replica.buffers()
        if self._team.size > 1:
            dist.destroy_process_group()
        return self._told

    def _follow(self, beside: ThreadPoolExecutor) -> None:
        weights = np.empty_like(self._replica.weights())
        ahead = beside.submit(self._ready)
        while (item := ahead.result()) is not None:
            ahead = beside.submit(self._ready)
            self._together(*item, weights)

    def _lead(self, beside: ThreadPoolExecutor, name: int, dealer: RayDealer, servers: Servers) -> None:
        parts, waits = self._replica.parts, self._task.backup is not None
        last = pulled = pushed = None
        ahead = beside.submit(self._next, dealer, name)
        while True:
            with parts("wait"):
                item = ahead.result()
            if item is None or isinstance(item, Wait):
                self._report(dealer, last)
                last = pulled = None
                if waits:
                    servers.rest(name, True)
                if item is None:
                    return
                with parts("wait"):
                    time.sleep(POLL)
            ahead = beside.submit(self._next, dealer, name)
            if isinstance(item, Wait):
                continue
            if pulled is None:
                with parts("exchange"):
                    if waits:
                        servers.rest(name, False)
                    pulled = servers.pull(pushed)
            last, pulled = self._step(dealer, servers, *item, pulled, last)
            pushed = last.versions if waits else None
            if not self._task.overlap:
                self._report(dealer, last)
                last = None

    def _step(
        self,
        dealer: RayDealer,
        servers: Servers,
        deal: Deal,
        whole: TeamBatch,
        batch: Batch,
        pulled: Pulled,
        last: InFlight | None,
    ) -> tuple[InFlight, Pulled | None]:
        """Push the gradient of a batch, and report the one before; with overlap, return newer weights too."""
        weights, versions = pulled
        gradient, losses = self._together(whole, batch, weights)
        self._report(dealer, last)
        with self._replica.parts("exchange"):
            # A server takes a worker's calls in turn: weights asked for after the push would wait for it.
            newer = servers.pull() if self._task.overlap else None
            pushed = InFlight(deal, losses, versions, servers.push(gradient, versions, len(losses)))
        self._told.curve.append((time.time(), float(losses.mean()), len(losses)))
        return pushed, newer

    def _report(self, dealer: RayDealer, last: InFlight | None) -> None:
        """Wait until the servers have a gradient, and report its losses."""
        if last is not None:
            with self._replica.parts("exchange"):
                newest = last.pushed.wait()
            with self._replica.parts("pruning"):
                dealer.observe(last.deal, last.losses, version=last.versions[0], newest=newest[0])

    def _next(self, dealer: RayDealer, name: int) -> tuple[Deal, TeamBatch, Batch] | Wait | None:
        """The node's next batch, announced to its replicas, and this one's part of it."""
        with self._replica.parts("dealing"):
            deal = dealer.deal(name)
            if isinstance(deal, Wait):
                return deal
        ready = self._ready(None if deal is None else TeamBatch(deal.ids, deal.weights, deal.epoch, deal.number))
        return None if deal is None or ready is None else (deal, *ready)

    def _ready(self, given: TeamBatch | None = None) -> tuple[TeamBatch, Batch] | None:
        """The batch that the first replica gives, and this one's part of it."""
        whole = self._team.announce(given)
        if whole is None:
            return None
        return whole, self._replica.batch(self._team.mine(whole.ids), whole.epoch, whole.number)

    def _together(self, whole: TeamBatch, batch: Batch, weights: Vector) -> tuple[Vector, Vector]:
        """Return the gradient of the node's batch, and all its losses; ``weights`` are the first replica's."""
        replica, team, size = self._replica, self._team, len(whole.ids)
        with replica.parts("average"):
            replica.load_weights(team.share(weights))
        counted = None if whole.weights is None else team.mine(whole.weights)
        gradient, mine = replica.gradient(batch, size, counted)
        with replica.parts("average"):
            losses = np.zeros(size, np.float32)
            losses[team.rank :: team.size] = mine
            both = team.add_up(np.concatenate([gradient, losses]))
        return both[:-size], both[-size:]
