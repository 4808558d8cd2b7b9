"""The study's tables: its own figures, the model's, and those of the emulated cluster, side by side."""

from collections.abc import Sequence
from dataclasses import asdict
from statistics import median

from benchmarks.common.commands import markdown
from benchmarks.common.records import Runs
from benchmarks.distributed.cluster import STUDY, Cluster, Configuration, Linked
from benchmarks.distributed.emulated.measure import caption, middle, runs_of, spread
from benchmarks.distributed.emulated.runs import NOMINAL, SOFTWARE
from benchmarks.distributed.measured.measured_tables import ALONE, setup_of
from benchmarks.distributed.measured.results import Facts, mean_staleness
from benchmarks.distributed.tables import ROWS

__all__ = ["model_at", "parts", "software", "stretches", "throughput"]

NONE = "-"
STEP = ("device", "average", "exchange", "wait", "pruning")
"""Parts of a step that follow one another; the device's has forward and backward in it."""


def model_at(gigabytes: float) -> Linked:
    """The study's devices and bytes on links of a rate."""
    return Linked(**(asdict(STUDY) | {"bandwidth": gigabytes * 1e9}))


def throughput(recorded: Runs) -> str:
    """Tables 1 and 2 with the study's links."""
    runs = [*runs_of(recorded, "tables", "spread")]
    return f"{_rows(runs, model_at(NOMINAL))}\n\n{caption(runs)}"


def software(recorded: Runs) -> str:
    """Tables 1 and 2 with the bytes a second that came through the study's software."""
    links = runs_of(recorded, "software")
    runs = [run for run in runs_of(recorded, "tables", "spread") if setup_of(run) == ALONE]
    return f"{_rows([*runs, *links], model_at(SOFTWARE))}\n\n{caption(links)}"


def _rows(runs: Sequence[Facts], model: Cluster) -> str:
    """Each row of the study beside the same configuration here."""
    ours: dict[Configuration, list[Facts]] = {}
    for run in runs:
        ours.setdefault(setup_of(run), []).append(run)
    alone = middle(ours.get(ALONE, []))
    lines = []
    for row in ROWS:
        one, some = row.configuration, ours.get(row.configuration, [])
        rate, expected = middle(some), model.images_per_second(one)
        stale = middle([run for run in some if run["staleness"]], lambda run: mean_staleness(run) or 0.0)
        lines.append(
            [
                str(row.table),
                f"{one}{', of their own' if one.placement == 'dedicated' else ''}",
                f"{row.study:.2f}",
                f"{row.study / ROWS[0].study:.2f}",
                f"{row.study / ROWS[0].study / one.nodes:.2f}",
                f"{expected:.0f}",
                *_measured(some, rate, expected, alone, one.nodes),
                NONE if stale is None else f"{stale:.2f}",
                str(len(some)),
            ]
        )
    columns = (
        "table", "configuration", "study, images/s", "speedup", "efficiency", "model, images/s",
        "emulated, images/s", "to the model", "speedup", "min - max", "efficiency", "staleness", "runs",
    )  # fmt: skip
    return markdown(columns, lines)


def _measured(some: Sequence[Facts], rate: float | None, expected: float, alone: float | None, nodes: int) -> list[str]:
    if rate is None or alone is None:
        return [NONE] * 5
    speedup = rate / alone
    to_model = f"{100 * (rate / expected - 1):+.1f} %"
    return [f"{rate:.1f}", to_model, f"{speedup:.2f}", spread(some, alone), f"{speedup / nodes:.2f}"]


def parts(recorded: Runs) -> str:
    """Where the time of a step goes: milliseconds of the emulated cluster."""
    runs = runs_of(recorded, "tables", "spread", "software")
    kinds: dict[tuple[float, Configuration], list[Facts]] = {}
    for run in runs:
        kinds.setdefault((run["gigabytes"], setup_of(run)), []).append(run)
    lines = []
    order = sorted(kinds, key=lambda kind: (-kind[0], kind[1].workers, kind[1].placement, kind[1].servers))
    for gigabytes, one in order:
        some = kinds[gigabytes, one]
        of = {part: 1000 * median(run["parts"][part] for run in some) for part in some[0]["parts"]}
        of["device"] += of["forward"] + of["backward"]
        link = 1000 * (model_at(gigabytes).step_seconds(one) - STUDY.compute_seconds)
        lines.append(
            [
                f"{one}{', of their own' if one.placement == 'dedicated' else ''}",
                f"{gigabytes:.3g} GB/s" if one.servers else NONE,
                *(f"{of[part]:.1f}" for part in STEP),
                f"{link:.1f}" if one.servers else NONE,
                *(f"{of[part]:.1f}" for part in ("update", "dealing")),
            ]
        )
    columns = ("configuration", "link", *STEP, "exchange by the model", "update", "dealing")
    return markdown(columns, lines)


def stretches(recorded: Runs) -> str:
    """The same configurations with devices and links slowed by several factors."""
    runs = runs_of(recorded, "stretch")
    found: dict[tuple[float, Configuration], float] = {
        (run["stretch"], setup_of(run)): run["images_per_second"] for run in runs
    }
    by = sorted({stretch for stretch, _ in found})
    lines = []
    for one in sorted({one for _, one in found}, key=lambda one: one.workers):
        rates = [found.get((stretch, one)) for stretch in by]
        last = rates[-1] or 1.0
        cells = [f"{rate:.1f} ({100 * (rate / last - 1):+.1f} %)" if rate else NONE for rate in rates]
        speedups = [
            f"{rate / found[stretch, ALONE]:.2f}" if rate and (stretch, ALONE) in found else NONE
            for stretch, rate in zip(by, rates, strict=True)
        ]
        lines.append([str(one), *cells, *speedups])
    images, speedup = ([f"{what} {stretch:g}" for stretch in by] for what in ("images/s at stretch", "speedup at"))
    columns = ("configuration", *images, *speedup)
    return f"{markdown(columns, lines)}\n\n{caption(runs)}"
