"""The arguments of the program ``prunedata`` and of its commands, and the help that they print.

A command's module is imported when it runs: help needs no zarr, which takes longer to import than all the rest.
"""

import argparse
import importlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NoReturn

from prunedata import __version__
from prunedata.checks import count_top
from prunedata.cli.watch import Settings
from prunedata.errors import PrunedataError

STATUSES = (
    "Exit status: 0 on success; 1 if doctor found something wrong; 2 on an error, with one line about it on "
    "standard error; 130 after Ctrl-C."
)
STORE = "path of the run's store, such as run.zarr"
JSON = "print one JSON object"
COLUMN = "column of the table (label)"

Command = Callable[..., Callable[..., object]]
"""Adds a command, by its name, its function in a module of this folder and its help; returns what adds an argument."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # argparse would print the usage and its own words; main has one form for every error.
        raise PrunedataError(f"{message} (see '{self.prog} --help')")


def parser() -> argparse.ArgumentParser:
    """Return the program's arguments. Those of a command have the name of its function as ``run``."""
    program = _Parser(
        prog="prunedata",
        description="Find wrong labels in your training set while you train, and leave them out.",
        epilog=STATUSES,
    )
    program.add_argument("--version", action="version", version=f"prunedata {__version__}")
    commands = program.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, function: str, told: str, **more: Any) -> Callable[..., object]:
        one = commands.add_parser(name, help=told, **more)
        one.set_defaults(run=function)
        return one.add_argument

    for add in (_add_watch_and_top, _add_plan, _add_readers, _add_report, _add_others):
        add(command)
    return program


def complete(args: argparse.Namespace) -> None:
    """Print a script by which a shell completes commands and options."""
    try:
        shtab = importlib.import_module("shtab")
    except ImportError:
        raise PrunedataError("Expected shtab, which writes completions. Got none: pip install shtab.") from None
    print(shtab.complete(parser(), shell=args.shell))


def number(text: str) -> int | float:
    """Return a written number as an int if it is one; a percentage, as 20%, as a fraction."""
    try:
        return float(Fraction(text[:-1]) / 100) if text.endswith("%") else int(text)
    except (ValueError, ZeroDivisionError):
        return float(text)


def _top(text: str) -> int | float:
    try:
        top = number(text)
        count_top(top, 1)
    except PrunedataError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    except ValueError:
        got = f"Expected a number, or a fraction such as 0.1 or 10%. Got {text!r}."
        raise argparse.ArgumentTypeError(got) from None
    return top


def _add_top(add: Callable[..., object], default: int | float, what: str) -> None:
    told = f"{what}: a number, or a fraction such as 0.1 or 10%% ({default:g})"
    add("--top", type=_top, default=default, metavar="N", help=told)


def _add_watch_and_top(command: Command) -> None:
    add = command(
        "watch",
        "watch.run",
        "run a training script unchanged, and list the rows that look wrong",
        usage="prunedata watch [-h] [-o FOLDER] [--top N] [--live] [--leave-out] [-m] PROGRAM ...",
    )
    add("-o", "--output", default=".", metavar="FOLDER", help="folder of the stores, such as FOLDER/train.zarr (.)")
    add("--top", type=int, default=Settings.top, metavar="N", help=f"how many suspects to list ({Settings.top})")
    add("--live", action="store_true", help="list suspects at the end of every epoch, too")
    add("--leave-out", action="store_true", help="leave out samples whose labels look wrong, late in the run")
    add("-m", action="store_true", dest="module", help="PROGRAM is a module, as for python -m")
    add("--site", action="store_true", help="print the folder for PYTHONPATH, for jobs that set PRUNEDATA_WATCH")
    add("program", nargs="?", help="a script, or a program such as torchrun or accelerate")
    add("arguments", nargs=argparse.REMAINDER, help="arguments of PROGRAM")
    add = command("top", "top.show", "show the progress and suspects of a run in the terminal, refreshed")
    add("store", help=STORE)
    add("--every", type=float, default=2.0, metavar="SECONDS", help="time between refreshes (2)")
    add("--top", type=int, default=20, metavar="N", help="how many suspects to list (20)")
    add("--live", action="store_true", help="show the report in the browser, only on this machine")


def _add_plan(command: Command) -> None:
    add = command("plan", "plan.show", "show which epochs a schedule prunes, and the time it saves")
    add("--samples", type=int, required=True, metavar="N", help="samples in the data set")
    add("--epochs", type=int, required=True, metavar="N", help="epochs of the run")
    add("--window", type=int, nargs="+", metavar="N", help="epochs per window, or of each window in turn")
    add(
        "--milestones",
        type=int,
        nargs="+",
        metavar="N",
        help="epochs at which the learning rate drops: one window per plateau, instead of --window",
    )
    add(
        "--steady",
        action="store_true",
        help="prune every epoch from --start on (a sixth of the epochs), as Schedule.steady; replaces window and block",
    )
    add("--start", type=int, metavar="N", help="first pruned position in a window, at least 1")
    add("--block", type=int, metavar="N", help="epochs per block")
    add("--pruned-per-block", type=int, metavar="N", help="pruned epochs at the start of each block")
    add("--attenuation", type=float, metavar="X", help="divisor of the start after the first window (1)")
    add("--anneal", type=number, metavar="N", help="last epochs, on all samples: a number, or a fraction below 1 (0)")
    add("--prune", type=number, metavar="P", help="samples to prune: a number, or a fraction such as 0.2 or 20%%")
    add("--batch-size", type=int, required=True, metavar="N", help="samples in a batch")
    add("--batch-time", type=float, metavar="S", help="seconds per training step; without it, print percentages only")
    add("--overhead", type=float, default=0.0, metavar="S", help="seconds that recording losses adds to an epoch (0)")
    readings = ("aligned", "printed")
    add("--reading", choices=readings, default="aligned", help="reading of the paper's Algorithm 2 (aligned)")
    add("--target-saving", type=float, metavar="PERCENT", help="propose schedules that save this much of the time")
    add("--json", action="store_true", help=JSON)


def _add_readers(command: Command) -> None:
    add = command("inspect", "summary.show", "print the contents of a run's store, and the samples pruned most")
    add("store", help=STORE)
    _add_top(add, 10, "how many of the samples pruned most to list")
    add("--json", action="store_true", help=JSON)
    add = command("index", "index.scan", "index the samples of WebDataset shards, by their headers")
    add("shards", nargs="+", metavar="SHARDS", help="paths or URLs; {000..099} is expanded")
    add("--output", default="index.json", metavar="FILE", help="where to write (index.json)")
    add("--json", action="store_true", help=JSON)
    told = "list the samples of a run, or of several folds, whose labels are most likely wrong"
    add = command("suspects", "runs.suspects", told)
    add("stores", nargs="+", metavar="STORE", help="path of a run's store; several are joined into one list")
    _add_top(add, 100, "how many samples")
    told = "labels by id, to show the classes of the suspects: .npy, text with one per line, or a CSV table"
    add("--labels", metavar="FILE", help=told)
    add("--label-column", metavar="NAME", help=COLUMN)
    add("-o", "--out", metavar="FILE", help="write the samples into a file")
    told = (
        "format: ids, csv, jsonl, parquet, verdicts for Pruner(without=FILE), or cleanlab for every sample's score; "
        "by default the ending of FILE, or ids"
    )
    add("--to", metavar="FORM", help=told)
    add("--json", action="store_true", help=JSON)
    add = command("compare", "runs.compare", "compare the suspects of two runs on the same data")
    add("stores", nargs=2, metavar="STORE", help="paths of the runs' stores")
    _add_top(add, 0.1, "number of samples of each run to compare")
    add("--json", action="store_true", help=JSON)
    add = command("advise", "runs.advise", "print how many labels of a run look wrong, and what to leave out")
    add("store", help=STORE)
    add("--json", action="store_true", help=JSON)


def _add_report(command: Command) -> None:
    add = command("report", "report.write", "write a page about a run: its suspects, and what to do")
    add("store", help=STORE)
    add("-o", "--output", metavar="FILE", help="where to write (report.html, review.html)")
    add("--compare", metavar="STORE", help="store of another run, to show side by side")
    told = "the data set, or a function that returns it, also as SCRIPT.py:NAME, to show images or texts of suspects"
    add("--dataset", metavar="MODULE:NAME", help=told)
    told = "labels by id, to show the classes of suspects, in a format of suspects --labels"
    add("--labels", metavar="FILE", help=told)
    add("--label-column", metavar="NAME", help=COLUMN)
    add("--top", type=int, metavar="N", help="how many samples to list (12; with --review 500)")
    add("--review", action="store_true", help="write a page to judge suspects one by one, with the keyboard")
    add("--json", action="store_true", help="print the contents of the page as one JSON object")
    add("--open", action="store_true", help="open the page in the browser")


def _add_others(command: Command) -> None:
    add = command("apply", "apply.correct", "correct labels by the verdicts from report --review")
    add("verdicts", help="the file that the page of report --review saved, such as verdicts.csv")
    add("--labels", required=True, metavar="FILE", help="the labels that were judged, in a format of suspects --labels")
    add("--label-column", metavar="NAME", help=COLUMN)
    add("--store", metavar="STORE", help="store of a run with keys on these samples, to match verdicts by key")
    told = "where to write: .npy; or .csv or .txt, one label a line or as --labels has them"
    add("-o", "--output", required=True, metavar="FILE", help=told)
    add("--rest", metavar="FILE", help="where to write the wrong samples without a new label, for Pruner(without=FILE)")
    add = command(
        "doctor",
        "doctor.check",
        "check the installation, a run's store, or a loader",
        epilog="Exit status: 0 if nothing is wrong, 1 if something is, 2 if it could not be checked.",
    )
    told = "script.py:name of a loader, or a run's store; by default the installation"
    add("what", nargs="?", help=told)
    add("--json", action="store_true", help=JSON)
    add = command("completion", "parser.complete", "print a script by which a shell completes commands and options")
    add("shell", choices=("bash", "zsh", "tcsh"), help="your shell")
