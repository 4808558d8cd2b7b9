"""Training on a cluster, after the study of 2017.

    python -m benchmarks.distributed model           its Tables 1 and 2 by a model, and what pruning saves
    python -m benchmarks.distributed model --json    a list of objects: table, configuration, study, model
    python -m benchmarks.distributed train --mode mixed --workers 2 --replicas 2 --servers 1 --prune 0.3
    python -m benchmarks.distributed throughput --mode mixed --workers 2 --replicas 2 --placement dedicated
    python -m benchmarks.distributed converge --nodes 1,2 --target-loss 1.6
    python -m benchmarks.distributed kills --mode async --samples 500 --cases 50
    python -m benchmarks.distributed tables          Tables 1, 2 and 3 with what was recorded here beside the study's
    python -m benchmarks.distributed figures         Figures 1, 2 and 3 as numbers; with --write, as a picture

``train`` prints one JSON object. ``throughput`` and ``converge`` record theirs in results.jsonl.bz2, as do
``kills`` and ``train --record``. ``async`` and ``mixed`` need Ray: replicas and servers are actors. ``train`` and
``throughput`` with ``--mode sync`` also run under torchrun.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common.commands import positive, program
from benchmarks.common.records import Runs
from benchmarks.distributed.arguments import add_data, add_task, data_of, task_of
from benchmarks.distributed.staleness import add_staleness, staleness
from benchmarks.distributed.tables import markdown_savings, markdown_tables, objects

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments``; return the exit status."""
    options = _parser().parse_args(arguments)
    if options.command == "staleness":
        return staleness(options)
    if options.command == "model":
        print(json.dumps(objects(), indent=2) if options.json else f"{markdown_tables()}\n\n{markdown_savings()}")
    else:
        return 1 if _measure(options) else 0
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = program("benchmarks.distributed", __doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    model = commands.add_parser("model", help="the study's Tables 1 and 2 by a model, and what pruning saves")
    model.add_argument("--json", action="store_true", help="print a list of objects, the tables only")
    train = commands.add_parser("train", help="train in one of the three modes, and print what came of it")
    add_task(train, "async")
    add_data(train)
    train.add_argument("--checkpoint", type=Path, help="file to save the run in, and to go on from if it exists")
    train.add_argument("--record", action="store_const", const="trained", help="keep the result, for the tables")
    throughput = commands.add_parser("throughput", help="train, and record images a second and where the time goes")
    add_task(throughput)
    add_data(throughput)
    throughput.set_defaults(record="throughput")
    converge = commands.add_parser("converge", help="train with 1, 2, .. nodes, and record when a loss was reached")
    add_task(converge, "mixed")
    add_data(converge)
    converge.add_argument("--nodes", type=_numbers, default=(1, 2), help="as 1,2,4; default: 1,2")
    converge.add_argument("--target-loss", type=float, required=True, help="mean loss of ten updates in a row")
    kills = commands.add_parser("kills", help="kill processes of runs at random instants, and record what comes of it")
    add_task(kills)
    add_data(kills)
    kills.add_argument("--cases", type=positive, default=50, help="default: %(default)s")
    kills.set_defaults(record="kills")
    figures = commands.add_parser("figures", help="Figures 1 to 3 of what was recorded: their numbers, or the picture")
    tables = commands.add_parser("tables", help="all tables of what was recorded, the study's beside them")
    for command in (train, throughput, converge, kills, tables, figures):
        command.add_argument("--results", type=Runs, metavar="FILE", help="default: what is in the checkout")
    tables.add_argument("--write", action="store_true", help="write them into docs/frameworks/modes.md, too")
    figures.add_argument("--write", action="store_true", help="draw them into docs/frameworks/modes.png")
    add_staleness(commands.add_parser("staleness", help="does pruning survive stale gradients? recorded runs, or more"))
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(positive(one) for one in text.split(","))


def _measure(options: argparse.Namespace) -> int:
    """Run a command, and return how much went wrong."""
    from benchmarks.distributed.measured import measured_tables, results, runs  # noqa: PLC0415 (torch takes seconds)

    recorded = options.results or results.RESULTS
    if options.command == "tables":
        print(measured_tables.tables(recorded))
        if options.write:
            measured_tables.write(recorded)
        return 0
    if options.command == "figures":
        from benchmarks.distributed.measured import figures  # noqa: PLC0415 (matplotlib takes seconds)

        print(figures.draw(recorded=recorded) if options.write else json.dumps(figures.objects(recorded), indent=2))
        return 0
    training, data = task_of(options), data_of(options)
    first = runs.is_first(training, options.command)
    if options.command == "converge":
        runs.converge(training, data, options.nodes, options.target_loss, recorded)
        return 0
    if options.command == "kills":
        facts = runs.kill(training, data, options.cases, recorded)
        print(json.dumps(facts, indent=2))
        return len(facts["wrong"])
    record = options.record if first else None
    facts = runs.run(training, data, record, recorded, getattr(options, "checkpoint", None))
    if first:
        print(json.dumps(facts | {"curve": results.thinned(facts["curve"])}, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
