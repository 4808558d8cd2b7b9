"""Do runs suspect the same samples? Between seeds, arms, networks.

    python -m benchmarks.pages.overlap --arrays FOLDER [--arm regular] [--record] [--json] [--out FOLDER]
    python -m benchmarks.pages.overlap --recorded [--out FOLDER]

Reads what benchmarks.study.train wrote with ``--arrays``, or what was recorded of it with ``--record``. Wrong
labels are drawn with a seed of their own, so all runs of one data set, size and kind of labels have the same ones. Runs
are compared only where all labels are equal. A run counts if it recorded hits: those that prune do, and all with
``--trace``. Where both of a pair counted losses above a blind guess's, suspects are ranked by these too. A run that
prunes by its counts doesn't see what it prunes: it agrees less.
"""

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from benchmarks.common.commands import add_results, program
from benchmarks.common.drawing import new_figure, save
from benchmarks.common.records import Runs
from benchmarks.study.arms import ARMS
from benchmarks.study.choosers import rates
from benchmarks.study.results import RunName, kind_of_labels, parse
from prunedata.cli.text import table
from prunedata.findings.compare import compare

__all__ = ["RESULTS", "RunCounts", "draw", "main", "mean_of_known", "pairs", "read_runs", "recorded_pairs", "summary"]

RESULTS = Runs(Path(__file__).with_name("results.jsonl.bz2"))
"""What this room measured itself: pairs of runs in one part, the ten networks in another."""
AGREEMENT = "agreement"
BETWEEN = ("seeds", "arms", "networks")


@dataclass(frozen=True)
class RunCounts:
    """One run's name, what its labels are, and its counts, each of shape (samples,)."""

    name: RunName
    labels: str
    hits: NDArray[Any]
    visits: NDArray[Any]
    high: NDArray[Any] | None


def read_runs(folder: Path) -> list[RunCounts]:
    """Return the runs of a folder that counted hits, ordered by network, arm, saving and seed."""
    runs = []
    for file in folder.glob("*.npz"):
        with np.load(file) as arrays:
            if "hits" in arrays:
                digest = sha256(arrays["labels"].tobytes() + arrays["wrong"].tobytes()).hexdigest()
                high = arrays.get("high")
                runs.append(RunCounts(parse(file.stem), digest, arrays["hits"], arrays["visits"], high))
    return sorted(runs, key=lambda run: (run.name.noise, run.name.size, run.name.kind, run.name.seed))


def pairs(runs: Iterable[RunCounts], top: float = 0.1) -> list[dict[str, Any]]:
    """Compare each pair of runs with equal labels; the most suspect `top`, a share of the samples, is its top."""
    groups: dict[tuple[str, str, str], list[RunCounts]] = defaultdict(list)
    for run in runs:
        groups[(run.name.noise, run.name.size, run.labels)].append(run)
    rows = []
    for (noise, size, _), group in groups.items():
        for one, other in combinations(group, 2):
            both = one.high is not None and other.high is not None
            counts = [(rates(run.hits, run.visits, run.high if both else None), run.visits) for run in (one, other)]
            found = compare(counts[0], counts[1], top)
            rows.append(
                {
                    "labels": noise, "size": size, "between": _between(one.name, other.name), "first": one.name.kind,
                    "first_seed": one.name.seed, "second": other.name.kind, "second_seed": other.name.seed,
                    "ranked_by": "hits, high" if both else "hits", **asdict(found),
                }
            )  # fmt: skip
    return rows


def _between(one: RunName, other: RunName) -> str:
    """Say in what alone two runs differ, or that they differ in more."""
    if one.kind == other.kind:
        return "seeds"
    if one.seed != other.seed:
        return "more"
    if one.network == other.network:
        return "arms"
    return "networks" if (one.arm, one.saving) == (other.arm, other.saving) else "more"


def summary(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean over the pairs of each two kinds of run, with their lowest and highest Jaccard; seeds, arms, networks."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["between"] in BETWEEN:
            fields = "labels", "size", "first", "second", "ranked_by"
            groups[(BETWEEN.index(row["between"]), *(row[field] for field in fields))].append(row)
    return [
        {
            "between": BETWEEN[at], "labels": labels, "size": size, "first": first,
            "second": "other seeds" if at == 0 else second, "ranked_by": by, "pairs": len(group),
            "jaccard": statistics.mean(row["jaccard"] for row in group),
            "jaccard_lowest": min(row["jaccard"] for row in group),
            "jaccard_highest": max(row["jaccard"] for row in group),
            "by_chance": statistics.mean(row["jaccard_by_chance"] for row in group),
            "rank_correlation": mean_of_known(row["rank_correlation"] for row in group),
        }
        for (at, labels, size, first, second, by), group in sorted(groups.items())
    ]  # fmt: skip


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """The mean of those that are not None; None if all are."""
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known else None


def _table(rows: Iterable[dict[str, Any]]) -> str:
    """Aligned columns under a heading for each kind of labels."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[f"{row['size']}, {kind_of_labels(row['labels'])}"].append(row)
    return "\n\n".join("\n".join([name, *_lines(group)]) for name, group in groups.items())


def _lines(rows: Iterable[dict[str, Any]]) -> list[str]:
    heads = "between", "first", "second", "ranked by", "pairs", "Jaccard", "lowest - highest", "by chance"
    lines = [[*heads, "rank correlation"]]
    for row in rows:
        rank = row["rank_correlation"]
        lines.append(
            [
                *(row[name] for name in ("between", "first", "second", "ranked_by")),
                str(row["pairs"]), f"{row['jaccard']:.3f}",
                f"{row['jaccard_lowest']:.3f} - {row['jaccard_highest']:.3f}", f"{row['by_chance']:.3f}",
                "-" if rank is None else f"{rank:.3f}",
            ]
        )  # fmt: skip
    return table(lines, left=range(4))


def draw(path: Path, rows: Sequence[dict[str, Any]], title: str) -> Path:
    """Two matrices of the kinds of run, Jaccard and rank correlation: means over all pairs of their runs.

    The diagonal is between seeds; a dash where there is no pair.
    """
    kinds = sorted({row[name] for row in rows for name in ("first", "second")})
    networks, arms = {kind.split()[0] for kind in kinds}, {kind.partition(" ")[2] for kind in kinds}
    alone = next(iter(networks)) if len(networks) == 1 else ""
    same = next(iter(arms)) if len(arms) == 1 else ""
    shown = [kind.removeprefix(alone).removesuffix(same).strip() or kind for kind in kinds]
    figure = new_figure(4.6 + 1.2 * len(kinds), 4.0 + 0.45 * len(kinds))
    for axes, field, name in zip(
        figure.subplots(1, 2, sharey=True),
        ("jaccard", "rank_correlation"),
        ("overlap (Jaccard)", "rank correlation"),
        strict=True,
    ):
        cells = np.full((len(kinds), len(kinds)), np.nan)
        for i, one in enumerate(kinds):
            for j, other in enumerate(kinds):
                mean = mean_of_known(row[field] for row in rows if {row["first"], row["second"]} == {one, other})
                cells[i, j] = np.nan if mean is None else mean
        _matrix(axes, cells, shown, name)
    figure.suptitle(f"{title}{f', {alone}' if alone else ''}\n(diagonal: between seeds)", fontsize=11)
    return save(figure, path)


def _matrix(axes: Axes, cells: NDArray[np.float64], kinds: Sequence[str], name: str) -> None:
    axes.imshow(np.ma.masked_invalid(cells), cmap="cividis", vmin=0, vmax=1)
    for (row, column), value in np.ndenumerate(cells):
        ink = "white" if value < 0.5 else "black"
        axes.text(
            column, row, "-" if np.isnan(value) else f"{value:.2f}", ha="center", va="center", color=ink, fontsize=9
        )
    axes.set_xticks(range(len(kinds)), kinds, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(kinds)), kinds)
    axes.tick_params(length=0)
    axes.set_title(name, fontsize=10, pad=8)
    axes.spines[:].set_visible(False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with command-line `arguments`; return the exit status."""
    parser = program("benchmarks.pages.overlap", "Do runs suspect the same?")
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--arrays", type=Path, metavar="FOLDER", help="what runs wrote of their samples")
    source.add_argument("--recorded", action="store_true", help="the pairs that were compared before")
    add("--record", action="store_true", help="keep the pairs of --arrays, for --recorded and the tables")
    add_results(parser, RESULTS)
    add("--top", type=float, default=0.1, help="of --arrays: share of the samples that is a top; default: %(default)s")
    add("--arm", action="append", choices=ARMS, metavar="ARM", help="of --arrays only these; may be repeated")
    add("--json", action="store_true", help="print one JSON object, with all pairs, instead of the table")
    add("--out", type=Path, metavar="FOLDER", help="draw a matrix for each kind of labels there")
    given = parser.parse_args(arguments)
    try:
        rows = recorded_pairs(given.results) if given.recorded else _compared(given)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    found = {"summary": summary(rows), "pairs": rows}
    if given.record:
        (given.results / AGREEMENT).add("ten-networks", found)
    print(json.dumps(found, indent=2) if given.json else _table(found["summary"]))
    if given.out is not None:
        for noise, size in sorted({(row["labels"], row["size"]) for row in rows}):
            mine = [row for row in rows if (row["labels"], row["size"]) == (noise, size)]
            title = f"Most suspect {mine[0]['top']} of {mine[0]['samples']:,} samples, {kind_of_labels(noise)}"
            print(draw(given.out / f"overlap-{size}-{noise}.png", mine, title), file=sys.stderr)
    return 0


def recorded_pairs(results: Runs) -> list[dict[str, Any]]:
    """Return the pairs that ``--record`` kept."""
    return [pair for compared in results.read(AGREEMENT) for pair in compared["pairs"]]


def _compared(given: argparse.Namespace) -> list[dict[str, Any]]:
    runs = read_runs(given.arrays)
    rows = pairs([run for run in runs if not given.arm or run.name.arm in given.arm], given.top)
    if not rows:
        raise ValueError(f"Expected two runs with hits and equal labels in {given.arrays}. Got none.")
    return rows


if __name__ == "__main__":
    raise SystemExit(main())
