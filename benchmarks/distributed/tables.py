"""The study's Tables 1 and 2, row by row, beside the model's."""

from dataclasses import dataclass

from benchmarks.common.markdown import markdown
from benchmarks.distributed.cluster import STUDY, Cluster, Configuration

__all__ = ["ROWS", "StudyRow", "markdown_tables", "objects"]


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
