"""Runs recorded on the emulated cluster, in the seconds of the cluster that is emulated."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from benchmarks.common.records import Runs
from benchmarks.distributed.cluster import STUDY
from benchmarks.distributed.emulated.runs import NOMINAL
from benchmarks.distributed.measured.results import Facts, read

__all__ = ["caption", "middle", "runs_of", "spread"]


def runs_of(recorded: Runs, *groups: str) -> list[Facts]:
    """The runs of some groups. Their times are divided by their stretch, so those of several stretches compare."""
    return [_unstretched(run) for run in read(recorded, "emulated") if run["group"] in groups]


def _unstretched(run: Facts) -> Facts:
    by = run["stretch"]
    return run | {
        "images_per_second": run["images_per_second"] * by,
        "seconds": run["seconds"] / by,
        "parts": {part: seconds / by for part, seconds in run["parts"].items()},
        "curve": [[when / by, loss] for when, loss in run["curve"]],
    }


def middle(runs: Iterable[Facts], of: Callable[[Facts], float] = lambda run: run["images_per_second"]) -> float | None:
    """The median over runs; None if there is none."""
    found = [of(run) for run in runs]
    return median(found) if found else None


def spread(runs: Sequence[Facts], alone: float, digits: int = 2) -> str:
    """The least and the largest speedup of several runs."""
    found = sorted(run["images_per_second"] / alone for run in runs)
    return "-" if len(found) < 2 else f"{found[0]:.{digits}f} - {found[-1]:.{digits}f}"


def caption(runs: Sequence[Facts]) -> str:
    """What was emulated, and on what it was measured, in a few sentences."""
    if not runs:
        return "Nothing was recorded yet."
    one, loads = runs[0], sorted(run["load"] for run in runs)
    devices = sorted({f"{1000 * run['device_time']:g} ms" for run in runs}, reverse=True)
    stretches = ", ".join(f"{by:g}" for by in sorted({run["stretch"] for run in runs}))
    links = ", ".join(f"{rate:.3g} GB/s" for rate in sorted({run["gigabytes"] for run in runs}, reverse=True))
    kind = {NOMINAL: ", those of the study's links"}.get(one["gigabytes"], "") if len(links) < 9 else ""
    return (
        f"Emulated: each device sleeps {' or '.join(devices)} an image, times the stretch of {stretches}. Nodes are "
        f"network namespaces, their links limited by `tbf` to {links}{kind}, over stretch and {one['shrink']:.3g}: "
        f"{one['parameters']:,} weights stand for {STUDY.gradient_bytes / 4:,.0f}. Real: the software, those weights "
        f"and gradients, and the losses ({one['network']} on {', '.join(sorted({run['data'] for run in runs}))}). "
        f"Seeds {', '.join(map(str, sorted({run['seed'] for run in runs})))}. On {one['hardware']}, torch "
        f"{one['versions']['torch']}, beside other work: load average {loads[0]:.0f} to {loads[-1]:.0f}."
    )
