"""The tables of docs/frameworks/modes.md, made from the recorded runs."""

from collections.abc import Iterable
from pathlib import Path

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


def _parts(folder: Path) -> dict[str, str]:
    """Each table with what it was made with, by its name."""
    trained = read(folder, "trained")
    return {
        "learning": f"{made.learning(trained)}\n\n{_made(trained)}",
        "throughput": study_tables.throughput(folder),
        "software": study_tables.software(folder),
        "parts": study_tables.parts(folder),
        "stretch": study_tables.stretches(folder),
        "ways": other_tables.ways(folder),
        "pruned": other_tables.pruned(folder),
        "straggler": other_tables.straggler(folder),
        "converge": other_tables.loss(folder),
        "kills": made.killings(read(folder, "kills")),
    }


def _own(folder: Path) -> list[str]:
    """Tables of runs on a cluster of one's own, where some were recorded."""
    fast, converged, slowed = (read(folder, kind) for kind in ("throughput", "converge", "backup"))
    return [
        *([made.throughput(fast), made.where_time_goes(fast), _made(fast)] if fast else []),
        *([made.convergence(converged), _made(converged)] if converged else []),
        *([made.backups(slowed), _made(slowed)] if slowed else []),
    ]


def tables(folder: Path = RESULTS) -> str:
    """All tables, one below the other."""
    return "\n\n".join([*_parts(folder).values(), *_own(folder)])


def fill(page: str, folder: Path = RESULTS) -> str:
    """Return a page with its tables as the recorded runs have them."""
    for name, table in _parts(folder).items():
        begin, end = f"<!-- table: {name} -->", "<!-- end of table -->"
        before, mark, rest = page.partition(begin)
        page = f"{before}{mark}\n\n{table}\n\n{end}{rest.partition(end)[2]}" if mark else page
    return page


def write(folder: Path = RESULTS) -> None:
    """Bring the page up to date."""
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), folder), encoding="utf-8")
