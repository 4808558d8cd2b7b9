"""The frontier of accuracy against visits: its runs, tables and picture.

python -m benchmarks.frontier run --data FOLDER --labels NPZ
python -m benchmarks.frontier table [--json]
python -m benchmarks.frontier picture -o docs/frontier-head.png
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.frontier.grid import SEEDS, plans, run
from benchmarks.frontier.head import Settings
from benchmarks.frontier.material import KINDS, load
from benchmarks.frontier.plan import ARMS
from benchmarks.frontier.results import RESULTS

CACHE = Path(__file__).parents[1] / "results" / "checkpoints" / "frontier.npz"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with command-line `arguments`; return the exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        status: int = given.do(given)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    return status


def _run(given: argparse.Namespace) -> int:
    torch.set_num_threads(given.threads)
    material = load(given.data, given.labels, given.cache)
    run(plans(given.kinds, given.seeds, given.arms), material.task, given.results, Settings())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frontier", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--results", type=Path, default=RESULTS, metavar="FOLDER", help="default: benchmarks/frontier/results"
    )
    add = commands.add_parser("run", parents=[common], help="run what is not recorded yet").add_argument
    add("--data", type=Path, required=True, metavar="FOLDER", help="CIFAR-10: train-*.parquet and test-*.parquet")
    add("--labels", type=Path, required=True, metavar="NPZ", help="CIFAR-10N's labels, in the order of those rows")
    add("--kinds", nargs="+", choices=KINDS, help="of labels; default: all")
    add("--seeds", nargs="+", type=int, default=SEEDS, help="default: 0 1 2")
    add("--arms", nargs="+", choices=ARMS, help="default: all")
    add("--threads", type=int, default=1, help="of torch; default: %(default)s")
    add("--cache", type=Path, default=CACHE, metavar="NPZ", help="where features are kept, made if it isn't there")
    parser.set_defaults(do=_run)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
