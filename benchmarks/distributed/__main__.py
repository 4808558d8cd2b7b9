"""Training on a cluster, after the study of 2017.

    python -m benchmarks.distributed model           its Tables 1 and 2 by a model, and what pruning saves
    python -m benchmarks.distributed model --json    a list of objects: table, configuration, study, model
    python -m benchmarks.distributed train --workers 2 --servers 1 --prune 0.3 --noise 0.4

Figures are images a second. ``train`` needs Ray: workers and parameter servers are actors, each at its own pace, and a
dealer prunes. It prints one JSON object.
"""

import argparse
import json
from collections.abc import Sequence

from benchmarks.common.arguments import positive, share
from benchmarks.common.on_ray import on_ray
from benchmarks.distributed.pruned import markdown_savings
from benchmarks.distributed.staleness.command import add_staleness, staleness
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
    train = commands.add_parser("train", help="train asynchronously on digits, with workers and parameter servers")
    train.add_argument("--workers", type=positive, default=2, help="default: %(default)s")
    train.add_argument("--servers", type=positive, default=1, help="each has a part of the weights; default: 1")
    train.add_argument("--epochs", type=positive, default=6, help="default: %(default)s")
    train.add_argument("--batch-size", type=positive, default=32, help="default: %(default)s")
    train.add_argument("--prune", type=share, default=0.0, help="share that pruned epochs leave out; default: none")
    train.add_argument("--noise", type=share, default=0.0, help="share of labels made wrong; default: none")
    train.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    add_staleness(commands.add_parser("staleness", help="does pruning survive stale gradients? recorded runs, or more"))
    options = parser.parse_args(arguments)
    if options.command == "staleness":
        return staleness(options)
    if options.command == "train":
        return _train(options)
    if options.json:
        print(json.dumps(objects(), indent=2))
    else:
        print(markdown_tables(), markdown_savings(), sep="\n\n")
    return 0


def _train(options: argparse.Namespace) -> int:
    from benchmarks.distributed.asynchronous import AsyncRun, train_async  # noqa: PLC0415 (Ray and torch take seconds)

    given = {name: value for name, value in vars(options).items() if name != "command"}
    with on_ray():
        found = train_async(AsyncRun(**given))
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
