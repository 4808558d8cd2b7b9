"""Do networks of a kind suspect the same samples? From the pairs that overlap compares."""

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from benchmarks.common.markdown import markdown
from benchmarks.pages.overlap import mean_of_known

__all__ = ["families", "table_of_families"]

KINDS = {"lenet": "LeNet", "vgg": "VGG", "resnet": "ResNet", "wrn": "WRN"}
"""Kinds of networks, by how their names begin."""


def families(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean over the pairs of each two kinds of networks, as VGG and ResNet, and of those that differ by their seed."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["between"] in ("networks", "seeds"):
            groups[row["between"], _family(row["first"]), _family(row["second"])].append(row)
    return [
        {
            "between": between, "first": first, "second": second, "pairs": len(group),
            "jaccard": statistics.mean(row["jaccard"] for row in group),
            "jaccard_lowest": min(row["jaccard"] for row in group),
            "jaccard_highest": max(row["jaccard"] for row in group),
            "rank_correlation": mean_of_known(row["rank_correlation"] for row in group),
        }
        for (between, first, second), group in sorted(groups.items())
    ]  # fmt: skip


def table_of_families(rows: Iterable[dict[str, Any]]) -> str:
    """The same as Markdown, seeds first, then the kinds that agree most."""
    lines = []
    for row in sorted(families(rows), key=lambda row: (row["between"] != "seeds", -row["jaccard"])):
        first, second, rank = KINDS[row["first"]], KINDS[row["second"]], row["rank_correlation"]
        names = f"two of {first}" if first == second else f"{first} and {second}"
        span = f"{row['jaccard_lowest']:.2f} to {row['jaccard_highest']:.2f}"
        lines.append(
            [
                f"seeds of a {first}" if row["between"] == "seeds" else names, str(row["pairs"]),
                f"{row['jaccard']:.2f}", span, "-" if rank is None else f"{rank:.2f}",
            ]
        )  # fmt: skip
    columns = ("between", "pairs", "Jaccard of the top tenth", "lowest to highest", "rank correlation")
    return markdown(columns, lines)


def _family(kind: str) -> str:
    """The kind of a network, as its name begins."""
    found = re.match("[a-z]+", kind)
    return found[0] if found else kind
