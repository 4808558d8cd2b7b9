"""Training on a cluster, after the study of 2017.

    python -m benchmarks.distributed model           its Tables 1 and 2 by a model, and what pruning saves
    python -m benchmarks.distributed model --json    a list of objects: table, configuration, study, model

Figures are images a second.
"""

import argparse
import json
from collections.abc import Sequence

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
    options = parser.parse_args(arguments)
    if options.json:
        print(json.dumps(objects(), indent=2))
    else:
        print(markdown_tables(), markdown_savings(), sep="\n\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
