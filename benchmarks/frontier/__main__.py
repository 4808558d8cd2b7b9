"""The frontier of accuracy against visits: its runs, tables and picture.

python -m benchmarks.frontier run --data FOLDER --labels NPZ
python -m benchmarks.frontier table [--json | --page docs/frontier.md]
python -m benchmarks.frontier picture -o docs/pictures/frontier-head.png
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.frontier.grid import SEEDS, plans, run
from benchmarks.frontier.head import Settings
from benchmarks.frontier.material import KINDS, load
from benchmarks.frontier.picture import draw
from benchmarks.frontier.plan import ARMS
from benchmarks.frontier.results import RESULTS, Facts, read
from benchmarks.frontier.table import as_json, fill, tables

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


def _table(given: argparse.Namespace) -> int:
    results = _read(given)
    if given.json:
        print(json.dumps(as_json(results), indent=2))
    elif given.page is None:
        print(tables(results), end="")
    else:
        given.page.write_text(fill(given.page, results), encoding="utf-8")
    return 0


def _picture(given: argparse.Namespace) -> int:
    print(f"Written to {draw(given.out, _read(given))}", file=sys.stderr)
    return 0


def _read(given: argparse.Namespace) -> list[Facts]:
    results = read(given.results, given.kinds)
    if not results:
        raise ValueError(f"Expected runs recorded in {given.results}. Got none: python -m benchmarks.frontier run.")
    return results


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frontier", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    place = "default: benchmarks/frontier/results"
    common.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help=place)
    common.add_argument("--kinds", nargs="+", choices=KINDS, help="of labels; default: all")
    _add_run(commands.add_parser("run", parents=[common], help="run what is not recorded yet"))
    table = commands.add_parser("table", parents=[common], help="print the tables")
    table.add_argument("--json", action="store_true", help="as one JSON object")
    table.add_argument("--page", type=Path, metavar="MD", help="write them between the markers of this page instead")
    table.set_defaults(do=_table)
    picture = commands.add_parser("picture", parents=[common], help="draw accuracy over visits")
    picture.add_argument("-o", "--out", type=Path, required=True, metavar="PNG", help="the file to write")
    picture.set_defaults(do=_picture)
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="FOLDER", help="CIFAR-10: train-*.parquet and test-*.parquet")
    add("--labels", type=Path, required=True, metavar="NPZ", help="CIFAR-10N's labels, in the order of those rows")
    add("--seeds", nargs="+", type=int, default=SEEDS, help="default: 0 1 2")
    add("--arms", nargs="+", choices=ARMS, help="default: all")
    add("--threads", type=int, default=1, help="of torch; default: %(default)s")
    add("--cache", type=Path, default=CACHE, metavar="NPZ", help="where features are kept, made if it isn't there")
    parser.set_defaults(do=_run)


if __name__ == "__main__":
    raise SystemExit(main())
