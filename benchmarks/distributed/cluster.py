"""The model of a cluster that trains as the study's did: how many images a second a configuration trains on.

The study is in *mixed* mode throughout. The replicas within a node average their gradients, so a node is one worker. It
pulls the weights from the parameter servers, computes, and pushes its gradients, without waiting for other workers.
"""

from dataclasses import dataclass
from typing import Literal

__all__ = ["STUDY", "Cluster", "Configuration", "Linked"]


@dataclass(frozen=True)
class Configuration:
    """Which nodes do what.

    Attributes
    ----------
    workers : int
        Nodes that train.
    servers : int
        Parameter servers, each with as large a part of the weights; 0 for one worker that trains alone.
    placement : "shared" or "dedicated"
        Whether servers run on nodes that train, or on nodes of their own.
    """

    workers: int
    servers: int = 0
    placement: Literal["shared", "dedicated"] = "shared"

    def __post_init__(self) -> None:
        if self.workers < 1 or self.servers < 0 or (not self.servers and self.workers > 1):
            raise ValueError(f"Expected at least one worker, and a server if there are more. Got {self}.")
        if self.placement == "shared" and self.servers > self.workers:
            raise ValueError(f"Expected no more servers than nodes that they share. Got {self}.")

    @property
    def nodes(self) -> int:
        """Nodes used."""
        return self.workers + (self.servers if self.placement == "dedicated" else 0)

    def __str__(self) -> str:
        """As the study names it."""
        if not self.servers:
            return "1 Node"
        workers = f"{self.workers} Worker{'s' * (self.workers > 1)}"
        return f"{self.nodes} Nodes ({workers} + {self.servers} PS)"


@dataclass(frozen=True)
class Cluster:
    """A cluster in six constants.

    Attributes
    ----------
    device_seconds : float
        Seconds in which one device trains on one image: forward, backward and averaging within the node.
    replicas : int
        Devices in a node.
    replica_batch : int
        Images a device takes at a time.
    gradient_bytes : float
        Bytes of all gradients, and of all weights.
    bandwidth : float
        Bytes a second that go into and out of a node together, as parameter servers get them through.
    contention : float
        By how much longer a server takes if its node trains too.
    """

    device_seconds: float
    replicas: int
    replica_batch: int
    gradient_bytes: float
    bandwidth: float
    contention: float

    @property
    def batch(self) -> int:
        """Images that a worker takes at a time."""
        return self.replicas * self.replica_batch

    @property
    def compute_seconds(self) -> float:
        """Seconds of a step without exchange."""
        return self.replica_batch * self.device_seconds

    @property
    def step_bytes(self) -> float:
        """Bytes that a worker moves in a step: gradients out, weights in."""
        return 2 * self.gradient_bytes

    def step_seconds(self, configuration: Configuration) -> float:
        """Seconds from one step of a worker to its next.

        A worker computes, and then exchanges: gradients out, weights in. Its own link lets these bytes through no
        faster than ``bandwidth``. So does the link of each server, which has a part of the bytes of all workers, one
        after the other; servers work side by side. How long a worker waits for the others is exact for a closed
        network of one such queue (mean value analysis, Reiser and Lavenberg 1980).
        """
        if not configuration.servers:
            return self.compute_seconds
        exchange = self.step_bytes / self.bandwidth
        contention = self.contention if configuration.placement == "shared" else 0.0
        served = exchange / configuration.servers * (1 + contention)
        elsewhere = self.compute_seconds + max(0.0, exchange - served)
        waiting_workers = response = 0.0
        for workers in range(1, configuration.workers + 1):
            response = served * (1 + waiting_workers)
            waiting_workers = workers * response / (elsewhere + response)
        return elsewhere + response

    def images_per_second(self, configuration: Configuration) -> float:
        """Images that all workers together train on in a second."""
        return configuration.workers * self.batch / self.step_seconds(configuration)


@dataclass(frozen=True)
class Linked(Cluster):
    """A cluster of which only devices and links take time: nothing of it is fitted.

    ``bandwidth`` is that of a node's link each way, so that weights come while gradients go. A worker reaches a server
    on its own node without the link.
    """

    def step_seconds(self, configuration: Configuration) -> float:
        """Seconds from one step of a worker to its next, as :meth:`Cluster.step_seconds`, by a queue for each way."""
        if not configuration.servers:
            return self.compute_seconds
        remote = 1 - 1 / configuration.workers if configuration.placement == "shared" else 1.0
        way = self.gradient_bytes * remote / self.bandwidth
        served = way / configuration.servers
        elsewhere = self.compute_seconds + 2 * (way - served)
        waiting_workers = response = 0.0
        for workers in range(1, configuration.workers + 1):
            response = served * (1 + waiting_workers)
            waiting_workers = workers * response / (elsewhere + 2 * response)
        return elsewhere + 2 * response


STUDY = Cluster(
    device_seconds=4 / 124.18,  # the study's one node: 4 devices, 124.18 images a second
    replicas=4,
    replica_batch=32,
    # ResNet-50 with 1,200 outputs in float32: 25,557,032 weights, less those of 1,000 outputs, with those of 1,200.
    gradient_bytes=4 * (25_557_032 - 1000 * 2049 + 1200 * 2049),
    # These two are fitted to the seven rows: the largest error is as small as it gets.
    bandwidth=0.94e9,
    contention=0.4,
)
"""The study's cluster: nodes of two K80 (four devices), InfiniBand, TensorFlow of 2016."""
