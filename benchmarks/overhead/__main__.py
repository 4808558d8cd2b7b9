"""What the library itself costs, each part beside its peer in the same run.

    python -m benchmarks.overhead                         some minutes
    python -m benchmarks.overhead --infobatch CHECKOUT    beside InfoBatch too: a clone of its repository
    python -m benchmarks.overhead --large                 selection and order of 100 million samples too

One thread. Seconds are the processor's, so that other programs disturb little; where the disk is waited for, they are
the clock's. Our runs and the peers' take turns, and a ratio is the median over the turns.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.common.commands import positive, program
from benchmarks.common.infobatch import InfoBatch
from benchmarks.common.timing import Row, machine, show_rows
from benchmarks.overhead.callers import keys
from benchmarks.overhead.parts import (
    added_to_an_epoch,
    commit,
    commit_after,
    commits,
    end_of_epoch,
    observe,
    order,
    selection,
    whole_run,
)

__all__ = ["main"]

LARGE = 100_000_000
HISTORIES = (10, 1_000, 10_000)
"""Epochs behind a commit."""
FEW = 3
"""Repeats of what takes seconds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        peer = InfoBatch(options.infobatch) if options.infobatch else None
    except FileNotFoundError as error:
        parser.error(str(error))
    torch.set_num_threads(1)
    about = machine(**({"InfoBatch": peer.version} if peer else {}))
    rows: list[Row] = []
    for row in _measure(options, peer):
        print(f"{len(rows) + 1}: {row.part}, {row.samples:,} samples", file=sys.stderr)
        rows.append(row)
    show_rows(rows, about, options.json)
    return 0


def _measure(options: argparse.Namespace, peer: InfoBatch | None) -> Iterator[Row]:
    sizes, repeats = options.samples, options.repeats
    few, middle = min(FEW, repeats), options.batch_sizes[len(options.batch_sizes) // 2]
    for samples in sizes:
        for batch in options.batch_sizes:
            yield from observe(samples, batch, repeats, peer)
    yield added_to_an_epoch(sizes[0], middle, repeats)
    for samples in sizes:
        yield end_of_epoch(samples, repeats)
    for samples in sizes + [LARGE] * options.large:
        for all_tied in (False, True):
            yield selection(samples, few if samples == LARGE else repeats, all_tied=all_tied)
    for samples in sizes + [LARGE] * options.large:
        for pruned in (False, True):
            yield order(samples, few if samples == LARGE else repeats, pruned=pruned)
    for samples in sizes:
        yield from keys(samples, repeats)
    for samples in sizes:
        with TemporaryDirectory(dir=options.disk) as folder:
            whole, pruner = whole_run(samples, middle, options.epochs, few, Path(folder))
            yield commit(pruner, 10 * repeats, Path(folder))
            yield commits(pruner, few)
            yield whole
    for behind in HISTORIES:
        with TemporaryDirectory(dir=options.disk) as folder:
            yield commit_after(behind, sizes[0], repeats, Path(folder))


def _parser() -> argparse.ArgumentParser:
    parser = program(
        "benchmarks.overhead", "Measure what the library itself costs, each part beside its peer in the same run."
    )
    add = parser.add_argument
    add("--infobatch", type=Path, metavar="CHECKOUT", help="folder of a clone of the InfoBatch repository")
    add("--large", action="store_true", help=f"selection and order of {LARGE:,} samples too; needs 3 GB")
    add("--samples", type=positive, nargs="+", default=[50_000, 1_280_000], help="default: 50000 1280000")
    add("--batch-sizes", type=positive, nargs="+", default=[32, 128, 1024], help="default: 32 128 1024")
    add("--epochs", type=positive, default=200, help="of the whole run; default: %(default)s")
    add("--repeats", type=positive, default=9, help="default: %(default)s")
    add("--disk", type=Path, metavar="FOLDER", help="where to commit to; default: the temporary folder")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--markdown", action="store_true", help="print a Markdown table, as by default")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
