"""Measure the study's cluster, emulated on this machine.

    python -m benchmarks.distributed.emulated run --groups tables,spread --data data/cifar10
    python -m benchmarks.distributed.emulated list

Each node is a network namespace, and each link is limited by ``tbf``. Devices sleep. Gradients and weights are moved,
averaged and updated by the reference trainer, as on a cluster. Runs that are recorded are not made again. It needs
Linux, root, iproute2 and Ray; without them it says so, with status 3.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common.commands import program
from benchmarks.common.records import Runs
from benchmarks.distributed.hosts import unable

__all__ = ["main"]

UNABLE = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments``; return the exit status."""
    parser = program("benchmarks.distributed.emulated", __doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, does in (("run", "make the runs that are not recorded yet"), ("list", "say which runs there are")):
        command = commands.add_parser(name, help=does)
        command.add_argument(
            "--groups", type=lambda text: tuple(text.split(",")), help="as tables,spread; default: all"
        )
    add = commands.choices["run"].add_argument
    add("--data", type=Path, help="folder of parquet files; default: digits, which are too few for most")
    add("--results", type=Runs, metavar="FILE", help="default: what is in the checkout")
    return _run(parser.parse_args(arguments))


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _run(options: argparse.Namespace) -> int:
    from benchmarks.distributed.emulated import runs  # noqa: PLC0415 (torch takes seconds)
    from benchmarks.distributed.measured.results import RESULTS  # noqa: PLC0415

    unknown = sorted(set(options.groups or ()) - set(runs.RUNS))
    if unknown:
        print(f"Expected groups of {', '.join(runs.RUNS)}. Got {', '.join(unknown)}.", file=sys.stderr)
        return 2
    todo = runs.runs_to_make(options.groups or tuple(runs.RUNS))
    if options.command == "list":
        for run in todo:
            print(run.group, f"{run.gigabytes:g} GB/s as {run.rate},", *runs.as_arguments(run.training))
        return 0
    if why := unable():
        print(f"Expected to make network namespaces. Got: {why}", file=sys.stderr)
        return UNABLE
    return 1 if runs.measure(todo, options.results or RESULTS, options.data) else 0


if __name__ == "__main__":
    raise SystemExit(main())
