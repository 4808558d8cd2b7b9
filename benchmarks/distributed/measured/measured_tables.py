"""The tables of docs/frameworks/modes.md, from the recorded runs: the study's Tables 1 to 3 beside ours, and others."""

from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median

from benchmarks.common.commands import markdown
from benchmarks.common.records import Runs
from benchmarks.distributed.cluster import Configuration
from benchmarks.distributed.emulated import tables as emulated
from benchmarks.distributed.measured.results import REPLICAS, RESULTS, Facts, mean_staleness, read, setup_of
from benchmarks.distributed.tables import ALONE, ROWS, TABLE_3
from benchmarks.distributed.training.task import PARTS

__all__ = [
    "PAGE",
    "backups",
    "convergence",
    "fill",
    "killings",
    "learning",
    "tables",
    "throughput",
    "where_time_goes",
    "write",
]


NONE = "-"


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


PAGE = Path(__file__).parents[3] / "docs" / "frameworks" / "modes.md"


def _made(runs: list[Facts]) -> str:
    """What runs were made with, in a sentence."""
    if not runs:
        return "Nothing was recorded yet."
    of = sorted({f"{run['network']} on {run['samples']:,} images of {run['data']}" for run in runs})
    batch = sorted({run["batch"] for run in runs})
    rates = sorted({run["learning_rate"] for run in runs})
    epochs = sorted({run["epochs"] for run in runs})
    seeds = sorted({run["seed"] for run in runs})
    return (
        f"{'; '.join(of)}, {_list(epochs)} epochs, {_list(batch)} images a replica, learning rate {_list(rates)}, "
        f"seeds {_list(seeds)}. On {'; '.join(sorted({run['hardware'] for run in runs}))}, torch "
        f"{_list(sorted({run['versions']['torch'] for run in runs}))}."
    )


def _list(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _parts(recorded: Runs) -> dict[str, str]:
    """Each table with what it was made with, by its name."""
    trained = read(recorded, "trained")
    return {
        "learning": f"{learning(trained)}\n\n{_made(trained)}",
        "throughput": emulated.throughput(recorded),
        "software": emulated.software(recorded),
        "parts": emulated.parts(recorded),
        "stretch": emulated.stretches(recorded),
        "ways": emulated.ways(recorded),
        "pruned": emulated.pruned(recorded),
        "straggler": emulated.straggler(recorded),
        "converge": emulated.loss(recorded),
        "kills": killings(read(recorded, "kills")),
    }


def _own(recorded: Runs) -> list[str]:
    """Tables of runs on a cluster of one's own, where some were recorded."""
    fast, converged, slowed = (read(recorded, kind) for kind in ("throughput", "converge", "backup"))
    return [
        *([throughput(fast), where_time_goes(fast), _made(fast)] if fast else []),
        *([convergence(converged), _made(converged)] if converged else []),
        *([backups(slowed), _made(slowed)] if slowed else []),
    ]


def tables(recorded: Runs = RESULTS) -> str:
    """All tables, one below the other."""
    return "\n\n".join([*_parts(recorded).values(), *_own(recorded)])


def fill(page: str, recorded: Runs = RESULTS) -> str:
    """Return a page with its tables as the recorded runs have them."""
    for name, table in _parts(recorded).items():
        begin, end = f"<!-- table: {name} -->", "<!-- end of table -->"
        before, mark, rest = page.partition(begin)
        page = f"{before}{mark}\n\n{table}\n\n{end}{rest.partition(end)[2]}" if mark else page
    return page


def write(recorded: Runs = RESULTS) -> None:
    """Bring the page up to date."""
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), recorded), encoding="utf-8")
