"""The time that pruning saves, and its overhead.

What an epoch saves is measured by its neighbours in the same run, as a shared machine drifts between runs.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import ceil
from typing import Any

from benchmarks.pages.accuracy import SHARED, paired

__all__ = ["PAPER", "saving_of_an_epoch", "table_of_savings", "table_of_time"]

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

Facts = dict[str, Any]
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
