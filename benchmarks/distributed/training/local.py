"""A worker of ``local``: it makes some steps of its own, and then the differences of all workers are averaged."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from benchmarks.distributed.training.node import POLL, NodeReplica, Pulled
from benchmarks.distributed.training.replica import Batch, RMSProp, Vector
from benchmarks.distributed.training.servers import Servers
from benchmarks.distributed.training.team import TeamBatch
from prunedata import Deal, Wait
from prunedata.adapters.ray import RayDealer

__all__ = ["LocalReplica"]


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
