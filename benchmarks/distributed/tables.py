"""The study's Tables 1 to 3, row by row; the first two beside the model's."""

from dataclasses import dataclass

from benchmarks.common.commands import markdown
from benchmarks.distributed.cluster import STUDY, Cluster, Configuration

__all__ = [
    "ALONE",
    "NODES",
    "ROWS",
    "TABLE_3",
    "PruningCost",
    "StudyRow",
    "StudyTime",
    "markdown_savings",
    "markdown_tables",
    "objects",
    "saving",
]


@dataclass(frozen=True)
class StudyRow:
    """A row of the study: images a second, as printed."""

    table: int
    configuration: Configuration
    study: float


ALONE = Configuration(1)
ROWS = (
    StudyRow(1, ALONE, 124.18),
    StudyRow(1, Configuration(4, 3, "dedicated"), 396.62),
    StudyRow(1, Configuration(4, 3), 374.73),
    StudyRow(1, Configuration(4, 1), 292.22),
    StudyRow(2, ALONE, 124.18),
    StudyRow(2, Configuration(2, 1), 195.60),
    StudyRow(2, Configuration(4, 3), 383.09),
    StudyRow(2, Configuration(8, 7), 809.10),
)


@dataclass(frozen=True)
class StudyTime:
    """A row of the study's Table 3."""

    nodes: int
    accuracy: float
    hours: float
    speedup: float


TABLE_3 = (
    StudyTime(1, 0.228, 106.43, 1.00),
    StudyTime(2, 0.217, 62.78, 1.69),
    StudyTime(4, 0.202, 37.99, 2.80),
    StudyTime(8, 0.217, 22.50, 4.73),
)


def objects(cluster: Cluster = STUDY) -> list[dict[str, object]]:
    """Each row as plain values: images a second of the study, and of the model."""
    return [
        {
            "table": row.table,
            "configuration": str(row.configuration),
            "study": row.study,
            "model": round(cluster.images_per_second(row.configuration), 2),
        }
        for row in ROWS
    ]


def markdown_tables(cluster: Cluster = STUDY) -> str:
    """Both tables in Markdown, with speedup and efficiency over the nodes used, by the model."""
    one = cluster.images_per_second(ALONE)
    lines = []
    for row in ROWS:
        model = cluster.images_per_second(row.configuration)
        nodes = row.configuration.nodes
        speedups = row.study / ROWS[0].study, model / one
        lines.append(
            [
                str(row.table),
                str(row.configuration),
                f"{row.study:.2f}",
                f"{model:.2f}",
                f"{round(100 * (model / row.study - 1), 1) + 0.0:+.1f} %",
                *(f"{speedup:.2f}" for speedup in speedups),
                *(f"{speedup / nodes:.2f}" for speedup in speedups),
            ]
        )
    columns = (
        "table", "configuration", "study, images/s", "model, images/s", "difference",
        "speedup, study", "speedup, model", "efficiency, study", "efficiency, model",
    )  # fmt: skip
    return markdown(columns, lines)


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
