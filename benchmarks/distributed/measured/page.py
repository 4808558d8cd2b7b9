"""The tables of docs/frameworks/modes.md, made from the recorded runs."""

from collections.abc import Iterable
from pathlib import Path

from benchmarks.common.records import Runs
from benchmarks.distributed.emulated import other_tables, study_tables
from benchmarks.distributed.measured import measured_tables as made
from benchmarks.distributed.measured.results import RESULTS, Facts, read

__all__ = ["PAGE", "fill", "tables", "write"]

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
        "learning": f"{made.learning(trained)}\n\n{_made(trained)}",
        "throughput": study_tables.throughput(recorded),
        "software": study_tables.software(recorded),
        "parts": study_tables.parts(recorded),
        "stretch": study_tables.stretches(recorded),
        "ways": other_tables.ways(recorded),
        "pruned": other_tables.pruned(recorded),
        "straggler": other_tables.straggler(recorded),
        "converge": other_tables.loss(recorded),
        "kills": made.killings(read(recorded, "kills")),
    }


def _own(recorded: Runs) -> list[str]:
    """Tables of runs on a cluster of one's own, where some were recorded."""
    fast, converged, slowed = (read(recorded, kind) for kind in ("throughput", "converge", "backup"))
    return [
        *([made.throughput(fast), made.where_time_goes(fast), _made(fast)] if fast else []),
        *([made.convergence(converged), _made(converged)] if converged else []),
        *([made.backups(slowed), _made(slowed)] if slowed else []),
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
