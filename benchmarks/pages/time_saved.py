"""What a pruned epoch saves, measured by its neighbours in the same run: between runs a shared machine drifts."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import ceil
from typing import Any

__all__ = ["saving_of_an_epoch", "table_of_savings"]

Facts = Mapping[str, Any]
NEIGHBOURS = 10
"""Fewer neighbouring epochs, of which one is pruned, tell nothing of time."""


def saving_of_an_epoch(facts: Facts) -> tuple[float, float] | None:
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


def table_of_savings(results: Iterable[Facts]) -> list[dict[str, Any]]:
    """Return a row for each network, data and policy: medians of its runs, which any number of labels and seeds had.

    ``overhead_percent`` is of the training time. ``measured_over_predicted`` is from :func:`saving_of_an_epoch`, of
    ``runs_in_turns``, those in which full and pruned epochs take turns; ``lowest_tenth`` and ``highest_tenth`` bound
    eight of ten of them.
    """
    groups: dict[tuple[str, str, int, str], list[Facts]] = defaultdict(list)
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
