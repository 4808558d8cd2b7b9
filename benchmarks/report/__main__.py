"""Measure how long reports take, and print a table."""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from benchmarks.common.commands import positive, program
from benchmarks.common.timing import Row, alternate, machine, table
from prunedata import Pruner, Schedule, report
from prunedata.policies import RunningLoss
from prunedata.store.run_store import read_run

__all__ = ["main"]

EPOCHS = 12


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit status."""
    parser = program("benchmarks.report", __doc__)
    parser.add_argument("--samples", type=positive, default=1_000_000, metavar="N", help="of the run (1000000)")
    parser.add_argument("--repeats", type=positive, default=3, metavar="N", help="how often each is measured (3)")
    options = parser.parse_args(arguments)
    print("\n".join(f"- {name}: {value}" for name, value in machine().items()), end="\n\n")
    with TemporaryDirectory() as folder:
        print(table(measure(Path(folder), options.samples, options.repeats)))
    return 0


def measure(folder: Path, samples: int, repeats: int) -> list[Row]:
    """Train two runs into `folder`; return a row for the page of one, with labels, and one for both side by side."""
    one, other = (_trained(folder / f"{seed}.zarr", samples, seed) for seed in (0, 1))
    labels = np.arange(samples) % 1000
    page = folder / "report.html"
    calls: dict[str, Callable[[], object]] = {
        "one": lambda: report(one, page, labels=labels),
        "two": lambda: report(one, page, compare=other),
        "read": lambda: read_run(one),
    }
    times = alternate({name: _timed(call) for name, call in calls.items()}, repeats)
    peer = {"reading the store": times["read"]}
    return [
        Row("report of a run, with labels of 1,000 classes", samples, None, "s", times["one"], peer, goal=10),
        Row("report of two runs side by side", samples, None, "s", times["two"], peer),
    ]


def _timed(call: Callable[[], object]) -> Callable[[], float]:
    def run() -> float:
        begun = perf_counter()
        call()
        return perf_counter() - begun

    return run


def _trained(place: Path, samples: int, seed: int) -> Path:
    """A run of twelve epochs, ten of them pruned, on losses that fall."""
    losses = np.random.default_rng(seed).exponential(size=samples).astype(np.float32)
    pruner = Pruner(
        samples, Schedule.steady(EPOCHS), prune=0.2, policy=RunningLoss(), classes=1000, seed=seed, store=place
    )
    for epoch in pruner.epochs():
        for ids in epoch.batches(4096):
            pruner.observe(losses[ids] * np.float32(10 / (1 + epoch.number)), ids)
    return place


if __name__ == "__main__":
    raise SystemExit(main())
