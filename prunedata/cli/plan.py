"""The command ``prunedata plan``: show which epochs a schedule prunes, and the time it saves."""

import argparse
import json
import sys
import warnings
from dataclasses import asdict
from typing import Any

from prunedata.checks import duration, integer
from prunedata.cli.text import marks, strip, table
from prunedata.errors import PrunedataError
from prunedata.plan.cost import CostModel, Prediction, count_pruned
from prunedata.plan.propose import Proposal, propose
from prunedata.plan.schedule import Schedule
from prunedata.run.options import warn_of_small_prune

SHAPE = ("start", "block", "pruned_per_block", "prune")  # options that describe a schedule beside its window
NOT_STEADY = ("window", "milestones", "block", "pruned_per_block", "attenuation")
"""Options that a steady schedule does not have."""
MOST_EPOCHS = 1_000_000


def _windows(args: argparse.Namespace) -> int | tuple[int, ...]:
    if args.steady:
        return int(args.epochs)
    if args.milestones is not None:
        if args.reading == "printed":
            raise PrunedataError("Expected --window with --reading printed. Got --milestones.")
        return Schedule.from_milestones(args.epochs, args.milestones, 1, 1, 1).window
    if args.window is None:
        raise PrunedataError("Expected --window, --milestones or --steady. Got none of them.")
    return args.window[0] if len(args.window) == 1 else tuple(args.window)


def _schedule(args: argparse.Namespace, window: int | tuple[int, ...]) -> Schedule | None:
    """Return the described schedule; None if only proposals are wanted."""
    if args.steady:
        return _steady(args)
    missing = [_option(name) for name in SHAPE if getattr(args, name) is None]
    untouched = len(missing) == len(SHAPE) and args.attenuation is None and args.anneal is None
    if untouched and args.target_saving is not None:
        return None
    if missing:
        raise PrunedataError(
            f"Expected all options of a schedule, or --target-saving without them. Missing: {', '.join(missing)}."
        )
    attenuation = 1.0 if args.attenuation is None else args.attenuation
    shape = (args.epochs, window, args.start, args.block, args.pruned_per_block, attenuation, args.reading)
    return Schedule(*shape, anneal=args.anneal or 0)


def _steady(args: argparse.Namespace) -> Schedule:
    given = [_option(name) for name in NOT_STEADY if getattr(args, name) is not None]
    if args.reading == "printed":
        given.append("--reading printed")
    if args.target_saving is not None:
        given.append("--target-saving")
    if given:
        raise PrunedataError(f"Expected --steady with --start and --anneal at most. Got {', '.join(given)}.")
    if args.prune is None:
        raise PrunedataError("Expected --prune with --steady. Got none.")
    return Schedule.steady(args.epochs, args.start, anneal=args.anneal or 0)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _warn(args: argparse.Namespace) -> None:
    """Print what the Pruner would warn of, on one line."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warn_of_small_prune(args.samples, args.prune, count_pruned(args.samples, args.prune))
    for warning in seen:
        print(f"prunedata: warning: {warning.message}", file=sys.stderr)


def show(args: argparse.Namespace) -> None:
    """Print which epochs the schedule prunes and what it saves, or schedules that save enough."""
    integer("--epochs", args.epochs, 1, MOST_EPOCHS)  # each of them is looked at
    window = _windows(args)
    schedule = _schedule(args, window)
    if schedule is not None:
        _warn(args)
    if args.batch_time is None and args.overhead:
        raise PrunedataError("Expected --batch-time with --overhead. Got none.")
    # A saving in percent is the same for every batch time where there is no overhead.
    batch_time = 1.0 if args.batch_time is None else args.batch_time
    cost = CostModel(args.samples, args.batch_size, batch_time, args.overhead)
    proposals = []
    if args.target_saving is not None:
        proposals = propose(cost, args.target_saving, args.epochs, window, reading=args.reading)
    planned = None if schedule is None else (schedule, cost.predict(schedule, args.prune))
    timed = args.batch_time is not None
    if args.json:
        found = _plan_dict(*planned, timed) if planned else {}
        if proposals:
            found["proposals"] = [
                p.schedule.to_dict() | {"prune": p.prune, "options": _options(p)} | asdict(p.prediction)
                for p in proposals
            ]
        print(json.dumps(found))
        return
    if planned:
        _print_plan(*planned, cost, args.prune, timed)
    if planned and proposals:
        print()
    if proposals:
        _print_proposals(proposals, args.target_saving)


def _plan_dict(schedule: Schedule, prediction: Prediction, timed: bool) -> dict[str, Any]:
    unknown = () if timed else ("regular_seconds", "pruned_seconds", "saved_seconds")
    numbers = {"pruned_epoch_numbers": schedule.pruned_epochs, "schedule": schedule.to_dict()}
    return asdict(prediction) | dict.fromkeys(unknown) | numbers


def _options(proposal: Proposal) -> str:
    schedule = proposal.schedule
    windows = schedule.window if isinstance(schedule.window, tuple) else (schedule.window,)
    text = (
        f"--window {' '.join(map(str, windows))} --start {schedule.start} --block {schedule.block} "
        f"--pruned-per-block {schedule.pruned_per_block} --attenuation {schedule.attenuation:g} "
        f"--prune {proposal.prune}"
    )
    return text if schedule.reading == "aligned" else f"{text} --reading printed"


def _print_plan(schedule: Schedule, found: Prediction, cost: CostModel, prune: int | float, timed: bool) -> None:
    two = marks(sys.stdout.encoding)
    print(f"epoch (each row a window; {two[1]} pruned, {two[0]} all samples)")
    print("\n".join(strip(schedule, two)), end="\n\n")
    pruned = count_pruned(cost.samples, prune)
    printed, formula = "-", "no formula for windows of given lengths"
    if not isinstance(schedule.window, tuple):
        printed = f"{found.pruned_epochs_printed:,}"
        formula = f"Formula {4 if schedule.epochs % schedule.window else 3} of the paper"
    rows = [
        ("pruned epochs, exact", f"{found.pruned_epochs:,}", f"of {schedule.epochs:,}"),
        ("pruned epochs, printed", printed, formula),
        ("samples pruned in each", f"{pruned:,}", f"of {cost.samples:,}"),
        ("batches, regular", f"{found.regular_batches:,}", f"of {cost.batch_size:,} samples"),
        ("batches, pruned", f"{found.pruned_batches:,}", ""),
        *_time_rows(found, timed),
        ("sample visits saved", f"{found.visits_saved_percent:.2f} %", ""),
    ]
    print("\n".join(table(rows, left=(0, 2))))
    if not found.pruned_epochs or not pruned:
        what = "sample" if found.pruned_epochs else "epoch"
        print(f"\nNothing is saved: this schedule never prunes any {what}.")


def _time_rows(found: Prediction, timed: bool) -> list[tuple[str, str, str]]:
    percent = f"{found.saved_percent:.2f} %"
    if not timed:
        return [
            ("batches saved", f"{found.regular_batches - found.pruned_batches:,}", ""),
            ("time saved, percent", percent, "if all batches take as long; in seconds with --batch-time"),
        ]
    return [
        ("time, regular", f"{found.regular_seconds:,.2f} s", duration(found.regular_seconds)),
        ("time, pruned", f"{found.pruned_seconds:,.2f} s", duration(found.pruned_seconds)),
        ("time saved", f"{found.saved_seconds:,.2f} s", duration(found.saved_seconds)),
        ("time saved, percent", percent, ""),
    ]


def _print_proposals(proposals: list[Proposal], target: float) -> None:
    rows = [("saved", "pruned epochs", "options")]
    for p in proposals:
        found = p.prediction
        rows.append((f"{found.saved_percent:.2f} %", f"{found.pruned_epochs:,}", _options(p)))
    print(f"schedules that save at least {target:g} % of the time:")
    print("\n".join(table(rows, left=(2,))))
