"""Tables of the recorded runs: the study's Tables 1 to 3 with its own rows beside ours, and where the time goes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

from benchmarks.common.commands import markdown
from benchmarks.distributed.cluster import Configuration
from benchmarks.distributed.measured.results import Facts, mean_staleness
from benchmarks.distributed.tables import ALONE, ROWS
from benchmarks.distributed.training.task import PARTS

__all__ = [
    "ALONE",
    "REPLICAS",
    "backups",
    "convergence",
    "killings",
    "learning",
    "setup_of",
    "throughput",
    "where_time_goes",
]


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
NONE = "-"
REPLICAS = 4
"""In each node, of the runs in Tables 1 and 2."""


def setup_of(facts: Facts) -> Configuration:
    """As the study counts: one node that trains alone has no servers."""
    if facts["mode"] == "sync" and facts["backup"] is None:
        return ALONE
    return Configuration(facts["workers"], facts["servers"], facts["placement"])


def throughput(runs: Iterable[Facts]) -> str:
    """The study's Tables 1 and 2 beside the same configurations here, and configurations that the study has not."""
    ours: dict[Configuration, list[float]] = {}
    for run in runs:
        if run["replicas"] != REPLICAS or run["overlap"] or (run["mode"] == "sync" and run["workers"] > 1):
            continue
        ours.setdefault(setup_of(run), []).append(run["images_per_second"])
    study: dict[tuple[int, Configuration], float] = {(row.table, row.configuration): row.study for row in ROWS}
    known = {configuration for _, configuration in study}
    rows = [(str(table), configuration, rate) for (table, configuration), rate in study.items()]
    more = sorted((one for one in ours if one not in known), key=lambda one: (one.nodes, one.workers, one.servers))
    lines = []
    for table, configuration, rate in [*rows, *((NONE, one, 0.0) for one in more)]:
        cells = [table, _title(configuration)]
        cells += _rates([rate] if rate else [], [ROWS[0].study], configuration.nodes, digits=2)
        cells += _rates(ours.get(configuration, []), ours.get(ALONE, []), configuration.nodes, digits=0)
        lines.append([*cells, str(len(ours.get(configuration, [])))])
    columns = (
        "table", "configuration", "study, images/s", "speedup", "efficiency",
        "here, images/s", "speedup", "efficiency", "runs",
    )  # fmt: skip
    return markdown(columns, lines)


def _title(configuration: Configuration) -> str:
    dedicated = configuration.placement == "dedicated"
    return f"{configuration}{', of their own' if dedicated else ''}"


def _rates(rates: list[float], alone: list[float], nodes: int, digits: int) -> list[str]:
    if not rates:
        return [NONE] * 3
    rate = median(rates)
    if not alone:
        return [f"{rate:,.{digits}f}", NONE, NONE]
    speedup = rate / median(alone)
    return [f"{rate:,.{digits}f}", f"{speedup:.2f}", f"{speedup / nodes:.2f}"]


def convergence(runs: Iterable[Facts]) -> str:
    """The study's Table 3 beside the same numbers of nodes here: medians over the seeds that reached the loss."""
    ours: dict[int, list[Facts]] = {}
    for run in runs:
        ours.setdefault(setup_of(run).nodes, []).append(run)
    alone = _median(ours.get(1, []), lambda run: run["seconds_to_target"])
    lines = []
    for row in TABLE_3:
        some = ours.get(row.nodes, [])
        seconds = _median(some, lambda run: run["seconds_to_target"])
        reached = sum(run["seconds_to_target"] is not None for run in some)
        lines.append(
            [
                str(row.nodes),
                f"{row.accuracy:.3f}",
                f"{row.hours:.2f} h",
                f"{row.speedup:.2f}",
                _number(_median(some, lambda run: run["accuracy"]), 3),
                NONE if seconds is None else f"{seconds:.1f} s",
                NONE if seconds is None or alone is None else f"{alone / seconds:.2f}",
                _number(_median(some, mean_staleness), 2),
                f"{reached} of {len(some)}" if some else NONE,
            ]
        )
    columns = (
        "nodes", "study, accuracy", "time", "speedup",
        "here, accuracy", "time to the loss", "speedup", "mean staleness", "runs that reached it",
    )  # fmt: skip
    return markdown(columns, lines)


def _median(runs: Iterable[Facts], of: Callable[[Facts], float | None]) -> float | None:
    found = [value for run in runs if (value := of(run)) is not None]
    return median(found) if found else None


def _number(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def learning(runs: Iterable[Facts]) -> str:
    """Each mode with and without pruning: accuracy, visits and staleness; medians over seeds."""
    kinds: dict[tuple[str, ...], list[Facts]] = {}
    for run in runs:
        kinds.setdefault((*_who(run), _pruning(run)), []).append(run)
    lines = [
        [
            *kind,
            f"{median(run['accuracy'] for run in some):.3f}",
            f"{min(run['accuracy'] for run in some):.3f} - {max(run['accuracy'] for run in some):.3f}",
            f"{median(sum(run['visits']) for run in some):,.0f}",
            _number(_median(some, mean_staleness), 2),
            str(len(some)),
        ]
        for kind, some in kinds.items()
    ]
    columns = (
        "mode", "workers x replicas", "pruned",
        "accuracy", "min - max", "visits", "mean staleness", "seeds",
    )  # fmt: skip
    return markdown(columns, lines)


def _who(run: Facts) -> tuple[str, str]:
    own = f", {run['local_steps']} steps" if run["mode"] == "local" else ""
    return run["mode"] + own + (", overlap" if run["overlap"] else ""), f"{run['workers']} x {run['replicas']}"


def _pruning(run: Facts) -> str:
    return f"{100 * run['prune']:.0f} %, {run['policy']}" if run["prune"] else "nothing"


def where_time_goes(runs: Iterable[Facts]) -> str:
    """Milliseconds of a worker's step, part by part; medians over runs."""
    kinds: dict[tuple[str, ...], list[Facts]] = {}
    for run in runs:
        servers = NONE if run["mode"] == "sync" else f"{run['servers']} {run['placement']}"
        kinds.setdefault((*_who(run), servers, _pruning(run)), []).append(run)
    lines = [
        [
            *kind,
            *(f"{1000 * median(run['parts'].get(part, 0.0) for run in some):.2f}" for part in PARTS),
            str(len(some)),
        ]
        for kind, some in kinds.items()
    ]
    return markdown(("mode", "workers x replicas", "servers", "pruned", *PARTS, "runs"), lines)


def backups(runs: Iterable[Facts]) -> str:
    """What backup workers save where one is slow: medians over seeds."""
    kinds: dict[tuple[str, ...], list[Facts]] = {}
    for run in runs:
        slowed = f"{1000 * run['slow'][1]:.0f} ms" if run["slow"] else "nobody"
        kinds.setdefault((str(run["workers"] * run["replicas"]), str(run["backup"]), slowed), []).append(run)
    lines = [
        [
            *kind,
            f"{median(run['images_per_second'] for run in some):,.0f}",
            f"{median(run['updates'] for run in some):,.0f}",
            f"{100 * median(run['dropped'] / _batches(run) for run in some):.0f} %",
            f"{median(run['accuracy'] for run in some):.3f}",
            str(len(some)),
        ]
        for kind, some in kinds.items()
    ]
    columns = (
        "replicas", "backups", "one is slowed by", "images/s", "updates", "gradients dropped", "accuracy", "runs",
    )  # fmt: skip
    return markdown(columns, lines)


def _batches(run: Facts) -> int:
    """Batches of all epochs: each made a gradient."""
    return sum(-(-visits // run["batch"]) for visits in run["visits"])


def killings(runs: Iterable[Facts]) -> str:
    """What came of processes that were killed at random instants, a row for each recorded search."""
    lines = [
        [
            run["mode"],
            f"{run['workers']} x {run['replicas']}",
            str(run["cases"]),
            _counted(run["killed"]),
            _counted(run["ends"]),
            f"{run['slowest']:.1f} s",
            str(len(run["wrong"])),
        ]
        for run in runs
    ]
    columns = ("mode", "workers x replicas", "runs", "killed", "ended", "slowest error", "wrong")
    return markdown(columns, lines)


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {times}" for name, times in sorted(counts.items()))
