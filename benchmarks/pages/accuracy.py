"""Accuracy and time against regular training of the same seed, labels, network and epochs.

What an epoch saves of the time is measured by its neighbours in the same run, as a shared machine drifts between runs.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from math import ceil
from typing import Any

from benchmarks.common.commands import markdown
from benchmarks.pages.overlap import mean_of_known

__all__ = [
    "PAPER",
    "SHARED",
    "families",
    "gain_of",
    "paired",
    "saving_of_an_epoch",
    "table_of_accuracy",
    "table_of_families",
    "table_of_gains",
    "table_of_savings",
    "table_of_time",
]


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


PAPER = {
    "lenet": (11.80, 75.15, 74.72),
    "vgg13": (7.40, 93.92, 93.56),
    "vgg16": (7.56, 93.79, 93.44),
    "vgg19": (7.65, 93.35, 93.30),
    "resnet18": (12.76, 91.25, 91.16),
    "resnet34": (13.43, 92.86, 92.85),
    "resnet50": (13.92, 93.75, 93.46),
    "wrn10": (13.73, 92.13, 91.78),
    "wrn16": (13.81, 94.22, 94.20),
    "wrn22": (14.29, 95.08, 94.71),
}
"""Speedup in percent (Table 1), accuracy of regular and of pruned training in percent (Table 2)."""

NEIGHBOURS = 10
"""Fewer neighbouring epochs, of which one is pruned, tell nothing of time."""


def saving_of_an_epoch(facts: Mapping[str, Any]) -> tuple[float, float] | None:
    """What a pruned epoch of a run was predicted to save of the time of a full one, and what it saved: shares.

    Predicted: the batches left out, as each takes as long as any other. Measured: the seconds, overhead included, of
    neighbouring epochs of which one is pruned, so that a machine that grows faster or slower hits both; the medians
    of all such neighbours. None if a run has fewer than NEIGHBOURS of them.
    """
    epochs, size = facts["curves"], facts["recipe"]["batch_size"]
    most = max(epoch["visits"] for epoch in epochs)
    pairs = []
    for two in pairwise(epochs):
        fewer, full = sorted(two, key=lambda epoch: epoch["visits"])
        if fewer["visits"] < most == full["visits"]:
            predicted = 1 - ceil(fewer["visits"] / size) / ceil(most / size)
            pairs.append((predicted, 1 - fewer["seconds"] / full["seconds"]))
    if len(pairs) < NEIGHBOURS:
        return None
    predicted, measured = (statistics.median(each) for each in zip(*pairs, strict=True))
    return predicted, measured


def table_of_savings(results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each network, data and policy: medians of its runs, which any number of labels and seeds had.

    ``overhead_percent`` is of the training time. ``measured_over_predicted`` is from :func:`saving_of_an_epoch`, of
    ``runs_in_turns``, those in which full and pruned epochs take turns; ``lowest_tenth`` and ``highest_tenth`` bound
    eight of ten of them.
    """
    groups: dict[tuple[str, str, int, str], list[Mapping[str, Any]]] = defaultdict(list)
    for facts in results:
        if facts["overhead_seconds"]:
            groups[(facts["network"], facts["data"], facts["samples"], facts["policy"])].append(facts)
    rows = []
    for (network, data, samples, policy), runs in sorted(groups.items()):
        ratios = sorted(measured / predicted for predicted, measured in filter(None, map(saving_of_an_epoch, runs)))
        shares = [100 * facts["overhead_seconds"] / facts["seconds"] for facts in runs]
        tenth = len(ratios) // 10
        rows.append(
            {
                "network": network, "data": data, "samples": samples, "policy": policy, "runs": len(runs),
                "overhead_percent": round(statistics.median(shares), 3), "runs_in_turns": len(ratios),
                "measured_over_predicted": round(statistics.median(ratios), 3) if ratios else None,
                "lowest_tenth": round(ratios[tenth], 3) if ratios else None,
                "highest_tenth": round(ratios[-1 - tenth], 3) if ratios else None,
            }
        )  # fmt: skip
    return rows


def table_of_time(results: Iterable[Facts]) -> list[Facts]:
    """Table 1: seconds of regular and of pruned training, overhead, and the percentage saved with it.

    ``measured_over_predicted`` is from :func:`saving_of_an_epoch`, the median of the runs that have it.
    """
    rows = []
    for group, pairs in paired(results).items():
        row: Facts = dict(zip(SHARED, group, strict=True))
        if row["policy"] == "regular":
            continue
        saved = [100 * (1 - facts["seconds"] / own["seconds"]) for facts, own in pairs]
        known = [both for facts, _ in pairs if (both := saving_of_an_epoch(facts))]
        ratios = [measured / predicted for predicted, measured in known]
        rows.append(
            {
                **row, "seeds": len(pairs),
                "regular_seconds": round(statistics.mean(own["seconds"] for _, own in pairs), 1),
                "pruned_seconds": round(statistics.mean(facts["seconds"] for facts, _ in pairs), 1),
                "overhead_seconds": round(statistics.mean(facts["overhead_seconds"] for facts, _ in pairs), 2),
                "saved_percent": round(statistics.median(saved), 2),
                "measured_over_predicted": round(statistics.median(ratios), 3) if ratios else None,
                "visits_saved_percent": round(statistics.mean(facts["visits_saved_percent"] for facts, _ in pairs), 2),
                "paper_percent": PAPER.get(row["network"], (None,))[0],
            }
        )  # fmt: skip
    return rows
