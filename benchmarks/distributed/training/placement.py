"""Which node each actor runs on: Ray places one bundle for each node of the task, on as many machines as there are."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import GetTimeoutError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from benchmarks.distributed.training.task import Training

__all__ = ["Places", "placed"]

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
