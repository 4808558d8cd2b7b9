"""What pruning saves on a cluster of the model: the time of an epoch on all samples, and of a pruned one."""

from dataclasses import dataclass

from benchmarks.common.markdown import markdown
from benchmarks.distributed.cluster import STUDY, Cluster, Configuration

__all__ = ["NODES", "PruningCost", "markdown_savings", "saving"]

NODES = tuple(2**power for power in range(11))
SAMPLES = 1_200_000
"""About as many as the study trained on."""
PRUNE = 0.3


@dataclass(frozen=True)
class PruningCost:
    """What pruning costs, measured on one core, as in docs/evidence/results.md and docs/frameworks/distributed.md.

    Attributes
    ----------
    round_trips : float
        Seconds that a worker waits for the dealer in each step, to get a batch and to report it, through Ray.
    dealing : float
        Seconds that the dealer itself needs for a batch: it cannot deal more often.
    sample : float
        Seconds a sample between two epochs: its end, selection and order.
    commit : float
        Seconds of a commit.
    """

    round_trips: float = 5e-3
    dealing: float = 1e-4
    sample: float = (5.6 + 3.5 + 24.1) * 1e-9
    commit: float = 6e-3


def best(nodes: int) -> Configuration:
    """The study's best configuration: every node trains, and all but one also serve."""
    return Configuration(nodes, nodes - 1)


def saving(
    cluster: Cluster, nodes: int, cost: PruningCost, samples: int = SAMPLES, prune: float = PRUNE
) -> tuple[float, float, float]:
    """Return the seconds of an epoch on all samples, of a pruned epoch, and of what pruning itself costs in that.

    Without pruning, workers go on from one epoch to the next. With it, all wait for the last batch of the epoch, as
    the next one depends on its losses: every worker is idle until the slowest is done, so that the epoch takes a whole
    number of steps.
    """
    step = cluster.step_seconds(best(nodes))
    regular = samples / cluster.batch / nodes * step
    batches = samples * (1 - prune) / cluster.batch
    slowed = max(step + cost.round_trips, nodes * cost.dealing)
    pruned = -(-batches // nodes) * slowed + samples * cost.sample + cost.commit
    return regular, pruned, pruned - (1 - prune) * regular


def markdown_savings(cluster: Cluster = STUDY, cost: PruningCost | None = None) -> str:
    """A table: for 1 to 1,024 nodes the time of an epoch on all samples, of a pruned one, and what is saved."""
    cost = cost or PruningCost()
    lines = []
    for nodes in NODES:
        regular, pruned, spent = saving(cluster, nodes, cost)
        lines.append(
            [
                f"{nodes:,}",
                f"{cluster.images_per_second(best(nodes)):,.0f}",
                f"{regular:,.1f} s",
                f"{pruned:,.1f} s",
                f"{100 * (1 - pruned / regular):.1f} %",
                f"{100 * spent / regular:.1f} %",
            ]
        )
    columns = ("nodes", "images/s", "epoch on all samples", "pruned epoch", "saved", "lost to pruning itself")
    return markdown(columns, lines)
