"""Workers in Ray actors, parameter servers, and a dealer that prunes: all modes but ``sync`` without backups."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from benchmarks.common.data import Data
from benchmarks.distributed.training.in_step import Started
from benchmarks.distributed.training.node import POLL, NodeReplica, Pulled
from benchmarks.distributed.training.replica import Batch, Checkpoint, Replica, RMSProp, TeamBatch, Vector
from benchmarks.distributed.training.servers import AveragingServer, QuorumServer, Servers, WeightServer
from benchmarks.distributed.training.task import Told, Training, facts_of
from prunedata import Deal, Wait
from prunedata.adapters.ray import RayDealer, serve

__all__ = ["LocalReplica", "NodesLost", "Places", "placed", "train_at_own_pace"]


@dataclass
class Round:
    """Steps that a worker made since it last had everyone's weights: what was dealt, and the losses."""

    pulled: Pulled
    made: list[tuple[Deal, Vector]] = field(default_factory=list)


class LocalReplica(NodeReplica):
    """What runs in a replica's process. The optimiser's average stays with the worker from round to round.

    A batch is reported when the servers have averaged what came of it, so a checkpoint has both or neither.
    """

    def _lead(self, beside: ThreadPoolExecutor, name: int, dealer: RayDealer, servers: Servers) -> None:
        parts = self._replica.parts
        optimiser = RMSProp(self._replica.weights(), self._task.learning_rate)
        current, pulled, resting = None, None, False
        ahead = beside.submit(self._next, dealer, name)
        while True:
            with parts("wait"):
                item = ahead.result()
            if item is None or isinstance(item, Wait):
                self._average(current, optimiser, name, dealer, servers, rests=not resting)
                current, pulled, resting = None, None, True
                if item is None:
                    return
                with parts("wait"):
                    time.sleep(POLL)
            ahead = beside.submit(self._next, dealer, name)
            if isinstance(item, Wait):
                continue
            if current is None:
                pulled = pulled or self._begin(name, servers, resting)
                current, resting = Round(pulled), False
                optimiser.weights = pulled[0]
            self._own_step(*item, optimiser, current)
            if len(current.made) == self._task.local_steps:
                pulled = self._average(current, optimiser, name, dealer, servers)
                current = None

    def _begin(self, name: int, servers: Servers, resting: bool) -> Pulled:
        with self._replica.parts("exchange"):
            if resting:
                servers.rest(name, False)
            return servers.pull()

    def _own_step(self, deal: Deal, whole: TeamBatch, batch: Batch, optimiser: RMSProp, current: Round) -> None:
        gradient, losses = self._together(whole, batch, optimiser.weights)
        with self._replica.parts("update"):
            optimiser.step(gradient)
        current.made.append((deal, losses))
        self._told.curve.append((time.time(), float(losses.mean()), len(losses)))

    def _average(
        self,
        current: Round | None,
        optimiser: RMSProp,
        name: int,
        dealer: RayDealer,
        servers: Servers,
        rests: bool = False,
    ) -> Pulled | None:
        """Send what a round changed, wait until it is averaged, and report its losses; return the new weights."""
        pulled = None
        with self._replica.parts("exchange"):
            if current is not None:
                weights, versions = current.pulled
                size = sum(len(losses) for _, losses in current.made)
                servers.push(optimiser.weights - weights, versions, size, name).wait()
            if rests:  # before it waits, so that nobody waits for it
                servers.rest(name, True)
            if current is not None:
                pulled = servers.pull(versions)
        with self._replica.parts("pruning"):
            for deal, losses in current.made if current else ():
                dealer.observe(deal, losses, version=versions[0], newest=versions[0])
        if current is not None:
            self._told.rounds.append((versions[0], [(deal.epoch, deal.number) for deal, _ in current.made]))
        return pulled


CPU = 0.01
"""What a node asks for: little, so that several nodes fit on one machine where there are no more."""


class Places:
    """The options of each actor, which say on which node it runs."""

    def __init__(self, task: Training, group: Any) -> None:
        self._task, self._group = task, group

    def worker(self, number: int) -> dict[str, Any]:
        """Of a replica of a worker."""
        return self._on(number)

    def server(self, number: int) -> dict[str, Any]:
        """Of a server: on the node of a worker, or on its own."""
        workers = self._task.nodes
        return self._on(number % workers if self._task.placement == "shared" else workers + number)

    def _on(self, node: int) -> dict[str, Any]:
        return {
            "num_cpus": 0,
            "max_restarts": 0,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                placement_group=self._group, placement_group_bundle_index=node
            ),
        }


@contextmanager
def placed(task: Training) -> Iterator[Places]:
    """Reserve the nodes of a task, and give them back."""
    nodes = task.nodes + (task.servers if task.placement == "dedicated" else 0)
    known: Any = ray.nodes()  # type: ignore[no-untyped-call]
    machines = sum(bool(node["Alive"]) for node in known)
    group = placement_group([{"CPU": CPU}] * nodes, strategy="STRICT_SPREAD" if machines >= nodes else "SPREAD")
    try:
        ray.get(group.ready(), timeout=task.within)
        yield Places(task, group)
    except GetTimeoutError as error:
        raise TimeoutError(f"Expected {nodes} nodes with {CPU} CPUs each within {task.within:g} seconds.") from error
    finally:
        remove_placement_group(group)


SOON = 5.0
"""Seconds in which Ray tells of a process that died, after its peers were cut off."""


class NodesLost(ConnectionError):
    """No worker is left."""


class Node:
    """A worker, as who started it sees it: the actors of its replicas. The death of one is the death of all."""

    def __init__(self, task: Training, data: Any, places: Places, number: int) -> None:
        kind = LocalReplica if task.mode == "local" else NodeReplica
        actor: Any = ray.remote(kind).options(**places.worker(number))
        self.number = number
        self.actors = [actor.remote(task, data, number, rank) for rank in range(task.team)]
        port = ray.get(self.actors[0].meeting.remote())
        ray.get([replica.join.remote(port) for replica in self.actors])

    def start(self, dealer: RayDealer, servers: Servers) -> None:
        """Train."""
        self.ends = [replica.train.remote(self.number, dealer, servers) for replica in self.actors]

    def told(self) -> Told | None:
        """What it tells when it is done, or None if one of its processes died. Other errors are raised."""
        try:
            return ray.get(self.ends)[0]  # type: ignore[no-any-return]
        except (RayActorError, RayTaskError) as error:
            if self._has_died():
                return None
            raise (error.cause if isinstance(error, RayTaskError) else error) from None

    def _has_died(self) -> bool:
        """Whether a replica's process died: its peers' errors, which may come first, say only that they are alone."""
        asked = [replica.pid.remote() for replica in self.actors]
        end = time.monotonic() + SOON
        while asked and time.monotonic() < end:
            for one in ray.wait(asked, timeout=0.1)[0]:
                asked.remove(one)
                try:
                    ray.get(one)
                except RayActorError:
                    return True
        return False

    def stop(self) -> None:
        """End its processes: the dealer then gives what they had to others."""
        for replica in self.actors:
            ray.kill(replica)


def train_at_own_pace(
    task: Training, data: Data, checkpoint: Path | None = None, started: Started | None = None
) -> dict[str, Any]:
    """Train on Ray, which has to run, and return the facts of the run.

    With ``checkpoint`` the run is saved at the end of each epoch, and goes on from there if the file exists. A worker
    that dies is done without.

    Raises
    ------
    ServerDied, DealerDied, NodesLost
        If what cannot be done without died.
    """
    held = Checkpoint.load(checkpoint) if checkpoint else None
    model = Replica(task, data)
    weights = model.weights() if held is None else held.weights
    with (
        placed(task) as places,
        _serving(task, weights, held, places) as servers,
        _working(task, data, places) as nodes,
    ):
        dealer = _dealing(task, data, held, auto_end=checkpoint is None)
        if started is not None:
            started(_processes(nodes, servers, dealer))
        begun = time.time()
        for node in nodes:
            node.start(dealer, servers)
        told, lost = _watch(nodes, dealer, servers, checkpoint, task.waits)
        weights, versions = servers.pull()
        model.load_weights(weights)
        model.load_buffers(told[0].buffers)
        facts = facts_of(
            task,
            data,
            dealer.ask(lambda pruner: [record["observed"] for record in pruner.history]),
            told,
            started=begun,
            accuracy=model.accuracy(),
            staleness=servers.staleness(),
            workers_lost=lost,
            dropped=servers.dropped() if task.waits else 0,
        )
        if task.mode == "local":
            facts["rounds"] = [one.rounds for one in told]
        facts["parts"]["update"] += sum(servers.seconds()) / max(1, facts["updates"])
        facts["updates"] = versions[0]
    return facts


@contextmanager
def _serving(task: Training, weights: Vector, held: Checkpoint | None, places: Places) -> Iterator[Servers]:
    """Start the servers, and end their processes."""
    options = [places.server(number) for number in range(task.servers)]
    kind: Any = (WeightServer, ()) if task.backup is None else (QuorumServer, (task.nodes, task.backup))
    if task.mode == "local":
        kind = AveragingServer, (task.nodes,)
    servers = Servers(weights, task.servers, held.average if held else None, task.learning_rate, options, kind)
    try:
        yield servers
    finally:
        for actor in servers.actors:
            ray.kill(actor)


@contextmanager
def _working(task: Training, data: Data, places: Places) -> Iterator[list[Node]]:
    """Start the workers, and end their processes."""
    given, nodes = ray.put(data), []
    try:
        for number in range(task.nodes):
            nodes.append(Node(task, given, places, number))
        yield nodes
    finally:
        for node in nodes:
            node.stop()


def _dealing(task: Training, data: Data, held: Checkpoint | None, *, auto_end: bool) -> RayDealer:
    """Start the dealer; its process ends when nobody knows it any more."""
    samples, classes = len(data.train), data.classes
    dealer = serve(lambda: task.pruner(samples, classes), task.team_batch, auto_end=auto_end, answer_within=task.within)
    if held is not None:
        dealer.load_state_dict(held.run)
    return dealer


def _processes(nodes: list[Node], servers: Servers, dealer: RayDealer) -> dict[str, int]:
    """The process of everyone, by name."""
    found = {"dealer": dealer.ask(lambda _: os.getpid())}
    for place, actor in enumerate(servers.actors):
        found[f"server {place}"] = ray.get(actor.pid.remote())
    for node in nodes:
        for rank, actor in enumerate(node.actors):
            found[f"worker {node.number} replica {rank}"] = ray.get(actor.pid.remote())
    return found


def _watch(
    nodes: list[Node], dealer: RayDealer, servers: Servers, checkpoint: Path | None, waits: bool
) -> tuple[list[Told], list[int]]:
    """Wait for all; return what those told that finished, and the numbers of those that died."""
    running = {end: node for node in nodes for end in node.ends}
    told, lost = [], []
    while running:
        ready, _ = ray.wait(list(running), timeout=None if checkpoint is None else 0.02)
        for node in {running[end].number: running[end] for end in ready}.values():
            one = node.told()
            running = {end: other for end, other in running.items() if other is not node}
            if one is None:
                node.stop()
                lost.append(node.number)
                if waits:
                    servers.rest(node.number, True)
            else:
                told.append(one)
        if checkpoint is not None and dealer.is_epoch_done:
            # Every batch was reported, and a gradient is reported when the servers have it. So nothing moves now.
            Checkpoint(servers.pull()[0], servers.average(), dealer.state_dict(), []).save(checkpoint)
            dealer.end_epoch()
    if not told:
        raise NodesLost(
            f"Expected a worker to finish. Got none of {len(nodes)}, as all died: run the same command again; with "
            "--checkpoint it goes on from the last epoch that ended."
        )
    return told, lost
