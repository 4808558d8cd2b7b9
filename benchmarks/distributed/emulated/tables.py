"""Tables of the emulated cluster: the study's beside the model's, and what local steps and pruning bring."""

from collections.abc import Sequence
from dataclasses import asdict
from statistics import median

from benchmarks.common.commands import markdown
from benchmarks.common.records import Runs
from benchmarks.distributed.cluster import STUDY, Cluster, Configuration, Linked
from benchmarks.distributed.emulated.runs import NOMINAL, SOFTWARE, caption, middle, runs_of, spread
from benchmarks.distributed.measured.results import Facts, mean_staleness, setup_of
from benchmarks.distributed.tables import ALONE, ROWS, TABLE_3
from benchmarks.distributed.training.task import reached

__all__ = ["TARGET", "loss", "model_at", "parts", "pruned", "software", "straggler", "stretches", "throughput", "ways"]


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
