"""What the study has not: pruned epochs, overlap, other links, local steps, a slow node, and the time to a loss."""

from collections.abc import Sequence
from statistics import median

from benchmarks.common.commands import markdown
from benchmarks.common.records import Runs
from benchmarks.distributed.emulated.measure import caption, middle, runs_of
from benchmarks.distributed.emulated.study_tables import NONE
from benchmarks.distributed.measured.measured_tables import ALONE, TABLE_3, setup_of
from benchmarks.distributed.measured.results import Facts, mean_staleness
from benchmarks.distributed.training.task import reached

__all__ = ["TARGET", "loss", "pruned", "straggler", "ways"]

TARGET = 1.0
"""The loss that Table 3 waits for: the mean of ten updates in a row."""


def ways(recorded: Runs) -> str:
    """Links and ways of exchanging: images a second, the speedup, and megabytes an image on all links together."""
    runs = runs_of(recorded, "local", "overlap", "rates")
    kept = [run for run in runs_of(recorded, "stretch") if run["stretch"] == 4 and setup_of(run).workers > 1]
    alone = middle([run for run in runs_of(recorded, "stretch") if setup_of(run) == ALONE and run["stretch"] == 4])
    order = sorted([*runs, *kept], key=lambda run: (run["workers"], _way(run), run["gigabytes"]))
    lines = [
        [
            str(setup_of(run)),
            _way(run),
            f"{run['gigabytes']:.3g} GB/s",
            f"{run['images_per_second']:.1f}",
            f"{run['images_per_second'] / alone:.2f}" if alone else NONE,
            f"{1000 * run['parts']['exchange']:.1f}",
            f"{mean_staleness(run) or 0:.2f}",
            str(run["updates"]),
        ]
        for run in order
    ]
    columns = (
        "configuration", "way", "link", "images/s", "speedup", "exchange in a step, ms", "staleness", "updates",
    )  # fmt: skip
    return f"{markdown(columns, lines)}\n\n{caption(order)}"


def _way(run: Facts) -> str:
    if run["mode"] == "local":
        return f"local, {run['local_steps']} step{'s' * (run['local_steps'] > 1)}"
    return f"{run['mode']}{', overlap' if run['overlap'] else ''}"


def straggler(recorded: Runs) -> str:
    """Four nodes of which one is half as slow again: who waits for it."""
    runs = runs_of(recorded, "straggler")
    lines = [
        [
            run["mode"] + (f", {run['backup']} backup" if run["backup"] is not None else ""),
            f"{1000 * run['slow'][1]:.0f} ms",
            f"{run['images_per_second']:.1f}",
            str(run["updates"]),
            f"{100 * run['dropped'] / -(-sum(run['visits']) // run['batch']):.0f} %",
            f"{run['visits'][0] / run['samples']:.0%}",
        ]
        for run in runs
    ]
    columns = ("way", "one node is slower by", "images/s", "updates", "gradients dropped", "samples observed")
    return f"{markdown(columns, lines)}\n\n{caption(runs)}"


def pruned(recorded: Runs) -> str:
    """Three epochs, of which the last two leave out 30 % or nothing."""
    runs = runs_of(recorded, "pruned")
    lines = []
    for one in sorted({setup_of(run) for run in runs}, key=lambda one: one.workers):
        regular, leaving = (
            next((run for run in runs if setup_of(run) == one and bool(run["prune"]) is prunes), None)
            for prunes in (False, True)
        )
        if regular is None or leaving is None:
            continue
        fewer = 1 - sum(leaving["visits"]) / sum(regular["visits"])
        saved = 1 - leaving["seconds"] / regular["seconds"]
        lines.append(
            [
                str(one),
                f"{regular['images_per_second']:.1f}",
                f"{leaving['images_per_second']:.1f}",
                f"{regular['seconds']:.1f} s",
                f"{leaving['seconds']:.1f} s",
                f"{100 * fewer:.1f} %",
                f"{100 * saved:.1f} %",
                f"{1000 * leaving['parts']['pruning']:.1f}",
                f"{1000 * leaving['parts']['wait']:.1f}",
            ]
        )
    columns = (
        "configuration", "images/s", "pruned", "three epochs", "pruned", "fewer images", "saved",
        "pruning in a step, ms", "wait, ms",
    )  # fmt: skip
    return f"{markdown(columns, lines)}\n\n{caption(runs)}"


def loss(recorded: Runs) -> str:
    """Table 3: the time to a loss."""
    ours: dict[int, list[Facts]] = {}
    runs = runs_of(recorded, "loss")
    for run in runs:
        ours.setdefault(setup_of(run).nodes, []).append(run)
    alone = _when(ours.get(1, []))
    lines = []
    for row in TABLE_3:
        some = ours.get(row.nodes, [])
        seconds, rate = _when(some), middle(some)
        base = middle(ours.get(1, []))
        accuracy = middle(some, lambda run: run["accuracy"])
        lines.append(
            [
                str(row.nodes),
                f"{row.accuracy:.3f}",
                f"{row.hours:.2f} h",
                f"{row.speedup:.2f}",
                NONE if rate is None or base is None else f"{rate / base:.2f}",
                NONE if seconds is None else f"{seconds:.1f} s",
                NONE if seconds is None or alone is None else f"{alone / seconds:.2f}",
                NONE if accuracy is None else f"{accuracy:.3f}",
                _stale(some),
                f"{sum(reached(run['curve'], TARGET) is not None for run in some)} of {len(some)}",
            ]
        )
    columns = (
        "nodes", "study, accuracy", "time", "speedup", "emulated, speedup in images/s", "time to the loss", "speedup",
        "accuracy", "staleness", "runs that reached it",
    )  # fmt: skip
    return f"{markdown(columns, lines)}\n\n{caption(runs)}"


def _stale(some: Sequence[Facts]) -> str:
    found = middle([run for run in some if run["staleness"]], lambda run: mean_staleness(run) or 0.0)
    return NONE if found is None else f"{found:.2f}"


def _when(runs: Sequence[Facts]) -> float | None:
    """Seconds to the loss: the median of those that reached it, if most did."""
    found = [when for run in runs if (when := reached(run["curve"], TARGET)) is not None]
    return median(found) if 2 * len(found) > len(runs) else None
