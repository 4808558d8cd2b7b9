"""What a run of up to a billion samples takes: memory, time, bytes in the store, bytes between ranks.

    python -m benchmarks.scale run --samples 1000000 10000000 --policy dropping-count
    python -m benchmarks.scale exchange --samples 1000000 10000000
    python -m benchmarks.scale table

``run`` and ``exchange`` need Linux. They record, in place of what was recorded of the same size before.
A billion samples take 13 GB of memory, 6 GB of disk and a quarter of an hour.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common.commands import add_results, positive, program
from benchmarks.common.records import Runs
from benchmarks.common.timing import made_on
from benchmarks.scale.exchange import measure_exchange
from benchmarks.scale.run import POLICIES
from benchmarks.scale.table import markdown_scale

__all__ = ["RESULTS", "main"]

RESULTS = Runs(Path(__file__).with_name("results.jsonl.bz2"))
"""Where the measurements are recorded, if nobody says otherwise."""
SIZES = (1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments``; return the exit status."""
    parser = program("benchmarks.scale", __doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="two epochs, one of them pruned: memory, time and store")
    run.add_argument("--policy", choices=POLICIES, default="dropping-count", help="default: %(default)s")
    exchange = commands.add_parser("exchange", help="what two ranks exchange at the end of an epoch")
    for one in (run, exchange):
        one.add_argument("--samples", type=positive, nargs="+", default=SIZES, help="sizes; default: up to 100 million")
    commands.add_parser("table", help="print the tables")
    for one in commands.choices.values():
        add_results(one, RESULTS)
    options = parser.parse_args(arguments)
    if options.command == "table":
        print(markdown_scale(options.results.read()))
        return 0
    for samples in options.samples:
        if options.command == "run":
            found, kind = _in_a_process(samples, options.policy), options.policy
        else:
            found, kind = measure_exchange(samples), "exchange"
        about = made_on("numpy", "zarr", "torch", "prunedata", threads=1)
        name = f"{kind}-{samples}"
        options.results.add(f"{kind}/{name}", {"name": name, "kind": kind, **found, **about})
        print(json.dumps(found), flush=True)
    return 0


def _in_a_process(samples: int, policy: str) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.scale.run", str(samples), policy, folder]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
