"""The command ``staleness``: run what is not recorded yet, or print the tables."""

import argparse
from pathlib import Path

from benchmarks.common.arguments import add_results, positive
from benchmarks.common.records import Runs
from benchmarks.common.timing import made_on
from benchmarks.distributed.staleness.runs import SUBJECTS, runs_to_make
from benchmarks.distributed.staleness.table import markdown_staleness

__all__ = ["RESULTS", "add_staleness", "staleness"]

RESULTS = Runs(Path(__file__).parents[1] / "results.jsonl.bz2")
"""Where the runs are recorded, if nobody says otherwise."""


def add_staleness(parser: argparse.ArgumentParser) -> None:
    """Give a parser the arguments of the command."""
    parser.add_argument("--run", choices=SUBJECTS, help="train what is not recorded of these data; else print tables")
    parser.add_argument("--images", type=Path, metavar="FOLDER", help="CIFAR-10's parquet files, for --run cifar10")
    parser.add_argument("--seeds", type=positive, default=3, help="default: %(default)s")
    parser.add_argument("--most", type=positive, help="stop after so many runs")
    add_results(parser, RESULTS)


def staleness(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    recorded = options.results / "staleness"
    if options.run is None:
        print(markdown_staleness(recorded.read()))
        return 0
    import torch  # noqa: PLC0415 (it takes seconds, and tables don't need it)

    from benchmarks.distributed.staleness.train import task_of, train_stale  # noqa: PLC0415

    torch.set_num_threads(1)
    done = recorded.names()
    for run in [run for run in runs_to_make(options.run, options.seeds) if run.name not in done][: options.most]:
        facts = train_stale(run, task_of(run, options.images)) | made_on("numpy", "torch", "prunedata", threads=1)
        recorded.add(f"{facts['kind']}/{facts['name']}", facts)
        print(facts["name"], facts["accuracy"], facts["found"], flush=True)
    return 0
