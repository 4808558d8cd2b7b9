"""The frontier of accuracy against visits: its runs, tables and picture.

python -m benchmarks.frontier run --subject head --data FOLDER --labels NPZ
python -m benchmarks.frontier table [--page docs/evidence/frontier-tables.md]
python -m benchmarks.frontier summary [--page docs/evidence/frontier.md]
python -m benchmarks.frontier auto [--page docs/evidence/frontier.md]
python -m benchmarks.frontier turn [--page docs/evidence/turn.md]
python -m benchmarks.frontier varied [--page docs/evidence/turn.md]
python -m benchmarks.frontier replay [--page docs/evidence/turn.md]
python -m benchmarks.frontier picture --subject head -o docs/pictures/frontier-head.png
python -m benchmarks.frontier watch --subject head --data FOLDER --labels NPZ
python -m benchmarks.frontier suspects [--page docs/evidence/suspects.md]
python -m benchmarks.frontier run-by-weight --subject head --data FOLDER --labels NPZ
python -m benchmarks.frontier by-weight [--page docs/evidence/frontier.md]
python -m benchmarks.frontier run-auto --subject head --data FOLDER --labels NPZ
python -m benchmarks.frontier run-short --subject head --data FOLDER --labels NPZ
python -m benchmarks.frontier short [--page docs/evidence/frontier.md]
python -m benchmarks.frontier run-corrected --subject head --data FOLDER --labels NPZ
python -m benchmarks.frontier corrected [--page docs/evidence/turn.md]
python -m benchmarks.frontier run-limits --subject head --data FOLDER --labels NPZ
python -m benchmarks.frontier limits [--page docs/evidence/turn.md]
"""

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks.common.commands import add_results, program, show
from benchmarks.common.records import Facts, Runs
from benchmarks.frontier import by_weight, corrected
from benchmarks.frontier.arms import ARMS, KINDS, SEEDS, USUAL, Plan
from benchmarks.frontier.data.material import Material
from benchmarks.frontier.grid import plans, run
from benchmarks.frontier.questions import limits
from benchmarks.frontier.report.auto import ALONE, AUTO, BEGIN_SHORT, REGULAR, auto, short
from benchmarks.frontier.report.auto import BEGIN as BEGIN_AUTO
from benchmarks.frontier.report.auto import SHORT as SHORT_EPOCHS
from benchmarks.frontier.report.picture import draw
from benchmarks.frontier.report.table import BEGIN, BEGIN_SUMMARY, all_tables, summary
from benchmarks.frontier.report.turn import BEGIN as BEGIN_TURN
from benchmarks.frontier.report.turn import BEGIN_REPLAY, BEGIN_VARIED, replay, turn, varied
from benchmarks.frontier.subjects import SUBJECTS, Subject
from benchmarks.frontier.suspects import BEGIN as BEGIN_SUSPECTS
from benchmarks.frontier.suspects import judge, table
from benchmarks.frontier.training.train import Settings
from prunedata.errors import NeverPrunesWarning

__all__ = ["RESULTS", "main"]

RESULTS = Runs(Path(__file__).with_name("results.jsonl.bz2"))
"""Where runs are recorded, if nobody says otherwise: a part for each subject and kind of labels."""
SUSPECTS, BY_WEIGHT, CORRECTED, LIMITS = "suspects", "by-weight", "corrected", "limits"
"""The parts of the recorded runs that were watched, of those by weight, of those after correcting labels, and of
those that go other ways after their turn."""
TODAY, SHORT = "auto", "short"
"""The parts of the runs by today's rule, of the usual length and of a few epochs, and of regular ones beside them."""
CACHES = Path(__file__).parent / "checkpoints"
PRINTED: dict[str, tuple[str, Callable[[dict[str, list[Facts]]], str], str, str]] = {
    "table": (BEGIN, all_tables, "", "the tables"),
    "summary": (BEGIN_SUMMARY, summary, "", "a line for each subject and kind of labels"),
    "auto": (BEGIN_AUTO, auto, TODAY, "what today's rule brings"),
    "turn": (BEGIN_TURN, turn, "", "what a run that is given nothing brings"),
    "varied": (BEGIN_VARIED, varied, "", "the same by other figures and rates"),
    "replay": (BEGIN_REPLAY, replay, "", "where the onset would have begun to prune in runs that left nothing out"),
    "suspects": (BEGIN_SUSPECTS, table, SUSPECTS, "how well wrong labels were found"),
    "short": (BEGIN_SHORT, short, SHORT, "what it brings in runs of a few epochs"),
    "by-weight": (by_weight.BEGIN, by_weight.table, BY_WEIGHT, "leaving out by weight beside leaving out"),
    "corrected": (corrected.BEGIN, corrected.table, CORRECTED, "what correcting suspects brings"),
    "limits": (limits.BEGIN, limits.table, LIMITS, "what other ways after the onset bring"),
}
"""Commands that print what was recorded: between which markers of a page it stands, of which part it is, what."""


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
    warnings.simplefilter("ignore", NeverPrunesWarning)
    subject, material, kinds = _material(given)
    todo = plans(kinds, given.seeds, given.arms, subject.lengths, given.epochs)
    run(todo, material.task, given.results / given.subject, subject.settings)
    return 0


def _watch(given: argparse.Namespace) -> int:
    torch.set_num_threads(given.threads)
    subject, material, kinds = _material(given)
    recorded = given.results / SUSPECTS / given.subject
    done = recorded.names()
    todo = [(seed, kind) for seed in given.seeds for kind in kinds if kind != "clean"]
    for seed, kind in tqdm([(seed, kind) for seed, kind in todo if f"{kind}-seed{seed}" not in done], unit=" runs"):
        facts = judge(material.task(kind), subject.settings, seed)
        recorded.add(f"{kind}/{facts['name']}", facts)
    return 0


def _run_by_weight(given: argparse.Namespace) -> int:
    return _run_apart(given, BY_WEIGHT, partial(by_weight.run, arms=given.arms))


def _run_corrected(given: argparse.Namespace) -> int:
    return _run_apart(given, CORRECTED, corrected.run)


def _run_limits(given: argparse.Namespace) -> int:
    return _run_apart(given, LIMITS, limits.run)


def _run_today(given: argparse.Namespace) -> int:
    return _run_arms(given, TODAY, (REGULAR, *AUTO), (USUAL,))


def _run_short(given: argparse.Namespace) -> int:
    return _run_arms(given, SHORT, (REGULAR, ALONE), SHORT_EPOCHS)


def _run_arms(given: argparse.Namespace, part: str, arms: Sequence[str], epochs: Sequence[int]) -> int:
    """Run some arms, of some lengths, that are recorded in a part of their own."""

    def run_all(material: Material, kinds: list[str], recorded: Runs, settings: Settings, seeds: Sequence[int]) -> int:
        todo = [Plan(kind, arm, length, seed) for seed, kind, arm, length in product(seeds, kinds, arms, epochs)]
        return run(todo, material.task, recorded, settings)

    return _run_apart(given, part, run_all)


def _run_apart(given: argparse.Namespace, part: str, run_all: Callable[..., int]) -> int:
    """Run what is recorded in a part of its own."""
    torch.set_num_threads(given.threads)
    warnings.simplefilter("ignore", NeverPrunesWarning)
    subject, material, kinds = _material(given)
    run_all(material, kinds, given.results / part / given.subject, subject.settings, given.seeds)
    return 0


def _print(begin: str, text_of: Callable[[dict[str, list[Facts]]], str], part: str, given: argparse.Namespace) -> int:
    """Print what is recorded in a part of its own, or if that is empty by subject; or write it into a page."""
    results = _read_in(given, part) if part else _read(given)
    if part == TODAY:  # beside all others
        results = {subject: [*of, *results.get(subject, ())] for subject, of in _read(given).items()}
    return show(text_of(results), begin, given.page)


def _read_in(given: argparse.Namespace, part: str) -> dict[str, list[Facts]]:
    """The runs recorded in a part of their own, by subject."""
    results = {subject: (given.results / part / subject).read(*(given.kinds or ())) for subject in SUBJECTS}
    return {subject: of for subject, of in results.items() if of}


def _material(given: argparse.Namespace) -> tuple[Subject, Material, list[str]]:
    """A subject, its material, and its kinds of labels that are asked for."""
    subject = SUBJECTS[given.subject]
    cache = given.cache or CACHES / f"frontier-{given.subject}.npz"
    kinds = [kind for kind in subject.kinds if kind in (given.kinds or KINDS)]
    return subject, subject.load(given.data, given.labels, cache), kinds


def _picture(given: argparse.Namespace) -> int:
    for subject, of in _read(given).items():
        print(f"Written to {draw(given.out, of, SUBJECTS[subject].lengths)}", file=sys.stderr)
    return 0


def _read(given: argparse.Namespace) -> dict[str, list[Facts]]:
    """The recorded runs by subject."""
    subjects = SUBJECTS if getattr(given, "subject", None) is None else [given.subject]
    results = {subject: (given.results / subject).read(*(given.kinds or ())) for subject in subjects}
    found = {subject: of for subject, of in results.items() if of}
    if not found:
        raise ValueError(f"Expected runs recorded in {given.results}. Got none: python -m benchmarks.frontier run.")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = program("benchmarks.frontier", __doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    add_results(common, RESULTS)
    common.add_argument("--kinds", nargs="+", choices=KINDS, help="of labels; default: all")
    run = commands.add_parser("run", parents=[common], help="run what is not recorded yet")
    run.add_argument("--arms", nargs="+", choices=ARMS, help="default: all")
    run.add_argument("--epochs", nargs="+", type=int, metavar="N", help="lengths; default: those of the subject")
    watched = commands.add_parser("watch", parents=[common], help="see how well wrong labels are found")
    weighed = commands.add_parser("run-by-weight", parents=[common], help="leave out, and by weight, in turn")
    weighed.add_argument(
        "--arms", nargs="+", choices=by_weight.COMPARED, default=by_weight.COMPARED, help="default: all"
    )
    mended = commands.add_parser("run-corrected", parents=[common], help="put suspects right, and train again")
    today = commands.add_parser("run-auto", parents=[common], help="run today's rule")
    brief = commands.add_parser("run-short", parents=[common], help="run a few epochs")
    others = commands.add_parser("run-limits", parents=[common], help="go other ways after the onset")
    for command, do in (
        (run, _run), (watched, _watch), (weighed, _run_by_weight), (mended, _run_corrected), (others, _run_limits),
        (today, _run_today), (brief, _run_short),
    ):  # fmt: skip
        _add_material(command)
        command.set_defaults(do=do)
    for name, (begin, text_of, part, what) in PRINTED.items():
        command = commands.add_parser(name, parents=[common], help=f"print {what}")
        if name in ("table", "summary"):
            command.add_argument("--subject", choices=SUBJECTS, help="default: all")
        command.add_argument("--page", type=Path, metavar="MD", help="write between the markers of this page instead")
        command.set_defaults(do=partial(_print, begin, text_of, part))
    picture = commands.add_parser("picture", parents=[common], help="draw accuracy over visits")
    picture.add_argument("--subject", choices=SUBJECTS, default="head", help="default: %(default)s")
    picture.add_argument("-o", "--out", type=Path, required=True, metavar="PNG", help="the file to write")
    picture.set_defaults(do=_picture)
    return parser


def _add_material(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--subject", choices=SUBJECTS, default="head", help="a network and its data; default: %(default)s")
    add("--data", type=Path, default=Path(), metavar="FOLDER", help="the subject's files; conv-digits needs none")
    add("--labels", type=Path, metavar="NPZ", help="CIFAR-10N's labels, in the order of CIFAR-10's rows, for head")
    add("--seeds", nargs="+", type=int, default=SEEDS, help="default: 0 1 2")
    add("--threads", type=int, default=1, help="of torch; default: %(default)s")
    add("--cache", type=Path, metavar="NPZ", help="where features are kept, made if it isn't there")


if __name__ == "__main__":
    raise SystemExit(main())
