"""The study's Figures 1 to 3, of what was recorded here: its own numbers and the model's are beside."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from benchmarks.common.drawing import BLUE, GREEN, GREY, ORANGE, VERMILION, new_figure, save, tidy
from benchmarks.common.records import Runs
from benchmarks.distributed.cluster import STUDY, Configuration
from benchmarks.distributed.emulated.runs import runs_of
from benchmarks.distributed.measured.results import REPLICAS, RESULTS, Facts, read, setup_of
from benchmarks.distributed.tables import ALONE, ROWS

__all__ = ["PICTURE", "Series", "draw", "objects", "series"]

PICTURE = Path(__file__).parents[3] / "docs" / "frameworks" / "modes.png"
NODES = range(1, 9)
"""Of the model's curves."""
LINEAR = "linear"
TITLES = {
    "1": "Figure 1: images a second of a setup",
    "2a": "Figure 2a: replicas of one node",
    "2b": "Figure 2b: nodes, all but one also serve",
    "3": "Figure 3: the loss over time, here",
}
AXES = {
    "1": ("nodes used", "images a second, over one node's"),
    "2a": ("replicas", "images a second, over one replica's"),
    "2b": ("nodes", "images a second, over one node's"),
    "3": ("seconds", "training loss"),
}
MOST, OWN, ONE = "all but one node also serve", "servers on nodes of their own", "one server, on a worker's node"
COLOURS = {MOST: BLUE, OWN: ORANGE, ONE: GREEN, LINEAR: GREY}
NODE_COLOURS = (GREY, BLUE, VERMILION, GREEN)
STYLES = {"study": "o", "here": "D", "model": "-", "exact": ":"}


Source = Literal["study", "model", "here", "exact"]


@dataclass(frozen=True)
class Series:
    """Points of a figure that belong together.

    Attributes
    ----------
    figure : "1", "2a", "2b" or "3"
    name : str
        What differs from the other series of the figure.
    source : "study", "model", "here" or "exact"
        Who found it.
    points : tuple of (float, float)
    """

    figure: str
    name: str
    source: Source
    points: tuple[tuple[float, float], ...]


def series(recorded: Runs = RESULTS) -> list[Series]:
    """All that the figures show, of the runs recorded. What was not recorded has no series.

    Runs of the emulated cluster go before those that ``throughput`` and ``converge`` recorded.
    """
    fast = runs_of(recorded, "tables", "spread", "replicas") or [
        run for run in read(recorded, "throughput") if not run["overlap"]
    ]
    found = [*_setups("1", fast, (1, 2), (MOST, OWN, ONE)), *_replicas(fast), *_setups("2b", fast, (2,), (MOST,))]
    found.append(Series("2b", LINEAR, "exact", tuple((node, node) for node in NODES)))
    return [one for one in [*found, *_losses(runs_of(recorded, "loss") or read(recorded, "converge"))] if one.points]


def _setups(figure: str, runs: Iterable[Facts], tables: tuple[int, ...], kinds: tuple[str, ...]) -> list[Series]:
    """Setups, which say what nodes train and what nodes serve: rows of the study's tables, the model's and ours."""
    ours: dict[Configuration, list[float]] = {}
    for run in runs:
        if run["replicas"] == REPLICAS and (run["mode"] != "sync" or run["workers"] == 1):
            ours.setdefault(setup_of(run), []).append(run["images_per_second"])
    many = [ALONE, *(Configuration(nodes, servers) for nodes in NODES[1:] for servers in (1, nodes - 1))]
    many += [Configuration(workers, workers - 1, "dedicated") for workers in (2, 3, 4)]
    study = [(row.configuration, row.study) for row in ROWS if row.table in tables]
    sources: list[tuple[Source, list[tuple[Configuration, float]]]] = [
        ("model", [(one, STUDY.images_per_second(one)) for one in dict.fromkeys(many)]),
        ("study", sorted(set(study), key=lambda row: row[1])),
        ("here", [(one, median(rates)) for one, rates in ours.items()]),
    ]
    return [Series(figure, kind, source, _relative(rates, kind)) for source, rates in sources for kind in kinds]


def _relative(rates: list[tuple[Configuration, float]], kind: str) -> tuple[tuple[float, float], ...]:
    """Nodes used, and how many times as fast as one node; nothing without that."""
    alone = [rate for one, rate in rates if one == ALONE]
    if not alone:
        return ()
    return tuple(sorted((one.nodes, rate / alone[0]) for one, rate in rates if _kind(one) == kind))


def _kind(one: Configuration) -> str:
    if one.placement == "dedicated":
        return OWN
    return MOST if one.servers == one.workers - 1 else ONE


def _replicas(runs: Iterable[Facts]) -> list[Series]:
    """Figure 2a: replicas of one node, which average their gradients."""
    rates: dict[int, list[float]] = {}
    for run in runs:
        if (run["mode"], run["workers"], run["backup"]) == ("sync", 1, None):
            rates.setdefault(run["replicas"], []).append(run["images_per_second"])
    line = Series("2a", LINEAR, "exact", tuple((count, count) for count in range(1, 5)))
    if 1 not in rates:
        return [line]
    alone = median(rates[1])
    points = tuple((count, median(some) / alone) for count, some in sorted(rates.items()))
    return [line, Series("2a", "replicas", "here", points)]


def _losses(runs: Iterable[Facts]) -> list[Series]:
    """Figure 3: the loss of the first recorded run of each number of nodes."""
    first: dict[int, Facts] = {}
    for run in runs:
        first.setdefault(setup_of(run).nodes, run)
    return [
        Series("3", f"{nodes} node{'s' * (nodes > 1)}", "here", tuple((when, loss) for when, loss in run["curve"]))
        for nodes, run in sorted(first.items())
    ]


def objects(recorded: Runs = RESULTS) -> list[dict[str, Any]]:
    """The same as plain values."""
    return [asdict(one) for one in series(recorded)]


def draw(path: Path = PICTURE, recorded: Runs = RESULTS) -> Path:
    """Write a PNG of four panels, and return its path."""
    found = series(recorded)
    figure = new_figure(9.6, 7.2)
    for axes, name in zip(figure.subplots(2, 2).flatten(), TITLES, strict=True):
        _panel(axes, name, [one for one in found if one.figure == name])
    return save(figure, path)


def _panel(axes: Axes, name: str, found: Sequence[Series]) -> None:
    for number, one in enumerate(found):
        x, y = zip(*one.points, strict=True)
        if name == "3":
            axes.plot(x, y, color=NODE_COLOURS[number % len(NODE_COLOURS)], label=one.name, linewidth=1.2)
        else:
            colour = COLOURS.get(one.name, BLUE)
            label = one.name if one.source == "exact" else f"{one.source}: {one.name}"
            filled = "none" if one.source == "here" else colour
            axes.plot(x, y, STYLES[one.source], color=colour, markerfacecolor=filled, markersize=6, label=label)
    across, up = AXES[name]
    axes.set(title=TITLES[name], xlabel=across, ylabel=up)
    axes.title.set_fontsize(10)
    if name != "3":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    tidy(axes)
    if name == "1":
        axes.set_ylim(0, 1.5 * axes.get_ylim()[1])  # room for the names of nine series
    if found:
        axes.legend(fontsize=7, frameon=False)
