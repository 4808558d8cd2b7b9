"""Training on a cluster, after the study of 2017.

    python -m benchmarks.distributed model           its Tables 1 and 2 by a model, and what pruning saves
    python -m benchmarks.distributed model --json    a list of objects: table, configuration, study, model
    python -m benchmarks.distributed train --mode mixed --workers 2 --replicas 2 --servers 1 --prune 0.3

Figures are images a second. ``train`` trains in one of the study's three modes and prints one JSON object. ``async``
and ``mixed`` need Ray: replicas and parameter servers are actors, and a dealer prunes.
"""

import argparse
import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from benchmarks.common.on_ray import on_ray
from benchmarks.distributed.arguments import add_data, add_task, data_of, task_of
from benchmarks.distributed.pruned import markdown_savings
from benchmarks.distributed.tables import markdown_tables, objects

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments``; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.distributed", description=(__doc__ or "").partition("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    model = commands.add_parser("model", help="the study's Tables 1 and 2 by a model, and what pruning saves")
    model.add_argument("--json", action="store_true", help="print a list of objects, the tables only")
    train = commands.add_parser("train", help="train in one of the three modes, and print what came of it")
    add_task(train, "async")
    add_data(train)
    train.add_argument("--checkpoint", type=Path, help="file to save the run in, and to go on from if it exists")
    options = parser.parse_args(arguments)
    if options.command == "train":
        return _train(options)
    if options.json:
        print(json.dumps(objects(), indent=2))
    else:
        print(markdown_tables(), markdown_savings(), sep="\n\n")
    return 0


def _train(options: argparse.Namespace) -> int:
    from benchmarks.distributed.training.modes import train  # noqa: PLC0415 (Ray and torch take seconds)

    task = task_of(options)
    with nullcontext() if task.mode == "sync" else on_ray():
        found = train(task, data_of(options), options.checkpoint)
    print(json.dumps(found | {"curve": None}, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
