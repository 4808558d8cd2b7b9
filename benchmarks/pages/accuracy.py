"""Accuracy against regular training of the same seed, labels, network and epochs."""

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from benchmarks.common.commands import markdown
from benchmarks.pages.overlap import mean_of_known

__all__ = ["SHARED", "families", "gain_of", "paired", "table_of_accuracy", "table_of_families", "table_of_gains"]

SHARED = ("network", "data", "samples", "epochs", "labels", "saving", "policy")
"""What runs that differ by the seed alone have in common."""
Facts = dict[str, Any]
Group = tuple[str, str, int, int, str, float, str]


def _setting(facts: Facts) -> tuple[str, str, int, int, str]:
    return facts["network"], facts["data"], facts["samples"], facts["epochs"], facts["noise"]


def paired(results: Iterable[Facts]) -> dict[Group, list[tuple[Facts, Facts]]]:
    """Pair every run with the regular one of its seed, and group the pairs by all that they share but the seed."""
    results = list(results)
    regular = {(*_setting(facts), facts["seed"]): facts for facts in results if facts["policy"] == "regular"}
    groups: dict[Group, list[tuple[Facts, Facts]]] = defaultdict(list)
    for facts in results:
        own = regular.get((*_setting(facts), facts["seed"]))
        if own is not None:
            groups[(*_setting(facts), facts["saving"], facts["policy"])].append((facts, own))
    return {group: sorted(groups[group], key=lambda pair: pair[0]["seed"]) for group in sorted(groups)}


def table_of_accuracy(results: Iterable[Facts]) -> list[Facts]:
    """Table 2 and its controls: a row for each network, kind of labels, saving and policy.

    ``gain`` is the mean over seeds of final accuracy less regular training's, in points; ``spread`` is the standard
    deviation of these differences, and ``gains`` are they themselves, by seed.
    """
    rows = []
    for group, pairs in paired(results).items():
        gains = [round(facts["accuracy_final"] - own["accuracy_final"], 3) for facts, own in pairs]
        rows.append(
            {
                **dict(zip(SHARED, group, strict=True)), "seeds": len(pairs),
                "visits_saved_percent": round(statistics.mean(facts["visits_saved_percent"] for facts, _ in pairs), 2),
                "accuracy_best3": round(statistics.mean(facts["accuracy_best3"] for facts, _ in pairs), 2),
                "accuracy_final": round(statistics.mean(facts["accuracy_final"] for facts, _ in pairs), 2),
                "gain": round(statistics.mean(gains), 2), "spread": _spread(gains), "gains": gains,
            }
        )  # fmt: skip
    return rows


def table_of_gains(accuracy: Iterable[Facts]) -> list[Facts]:
    """Return gains side by side: a row for each network, kind of labels and saving, from those of accuracy.

    ``gains`` maps a policy to its row of :func:`table_of_accuracy`.
    """
    found, regular = [], None
    for setting, rows in groupby(accuracy, key=lambda row: {name: row[name] for name in SHARED[:-1]}):
        policies = {row["policy"]: row for row in rows}
        if "regular" in policies:  # it saves nothing, and so comes first
            regular = policies["regular"]["accuracy_final"]
        else:
            found.append({**setting, "regular": regular, "gains": policies})
    return found


def gain_of(row: Facts | None, digits: int = 2, *, best: bool = False) -> str:
    """Mean, bold if best, and range of a row of :func:`table_of_accuracy`, and how few its seeds; "" of no row."""
    if row is None:
        return ""
    mean, lowest, highest = (f"{gain:+.{digits}f}" for gain in (row["gain"], min(row["gains"]), max(row["gains"])))
    few = {1: "1 seed", 2: f"2 seeds, {lowest} to {highest}"}
    return f"{f'**{mean}**' if best else mean} ({few.get(row['seeds'], f'{lowest} to {highest}')})"


def _spread(values: Sequence[float]) -> float:
    return round(statistics.stdev(values), 3) if len(values) > 1 else 0.0


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
