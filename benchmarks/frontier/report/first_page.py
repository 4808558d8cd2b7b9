"""The table of README: what a stranger can expect, beside the controls."""

from collections.abc import Mapping, Sequence

from benchmarks.common.markdown import markdown
from benchmarks.common.records import Facts
from benchmarks.frontier.arms import SEEDS, USUAL
from benchmarks.frontier.curves import Curve, curves
from benchmarks.frontier.distances import best_of, tuned
from benchmarks.frontier.subjects import SUBJECTS

__all__ = ["BEGIN", "first_page"]

BEGIN = "<!-- python -m benchmarks.frontier first-page -->"
ROWS = (
    ("head-pretrained", "worse", "{} wrong, by people"),
    ("conv-cifar10", "worse", "{} wrong, by people; trained from scratch"),
    ("head-pretrained", "aggre", "{} wrong, by people"),
    ("head-texts", "worse", "{} wrong, by people; short texts"),
    ("head-pretrained", "confusable20", "{} wrong, mistakes a weak model makes"),
    ("head-pretrained", "clean", "none wrong"),
)
"""The subject, the kind of labels, and how a stranger calls it."""
HEADS = (
    "labels",
    f"{USUAL} epochs",
    "best length",
    "and tuned",
    'prunedata, told nothing (`"auto"`)',
    "all known",
)
KNOWN = "known-wrong"


def first_page(results: Mapping[str, Sequence[Facts]]) -> str:
    """Return the table as Markdown, from the runs of each subject."""
    lines = []
    for subject, kind, told in ROWS:
        runs = results.get(subject, ())
        arms = curves(runs, SUBJECTS[subject].lengths).get(kind, {})
        of_auto = [run["accuracy"] for run in runs if (run["kind"], run["arm"], run["epochs"]) == (kind, "turn", USUAL)]
        if "regular" not in arms or not of_auto:
            continue
        wrong = next(run["wrong_percent"] for run in runs if run["kind"] == kind)
        lines.append([told.format(f"{wrong:.0f} %"), *_row(arms, of_auto)])
    return markdown(HEADS, lines) + "\n"


def _row(arms: Mapping[str, Curve], of_auto: Sequence[float]) -> list[str]:
    regular = arms["regular"]
    best = best_of(arms, ["regular", *tuned(arms, "regular")])
    known = arms.get(KNOWN, regular)  # where no label is wrong, all is known already
    return [_usual(regular), _highest(regular), _highest(arms[best]), _mean(of_auto), _highest(known)]


def _highest(curve: Curve) -> str:
    return f"{curve.mean.max():.1f}{_of(len(curve.seeds))}"


def _usual(curve: Curve) -> str:
    """Mean accuracy at the usual length, and of how many seeds if they are not as many as of others."""
    return f"{curve.mean[curve.epochs.index(USUAL)]:.1f}{_of(len(curve.seeds))}"


def _mean(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.1f}{_of(len(values))}"


def _of(number: int) -> str:
    """How many seeds, if they are not as many as of others."""
    return "" if number == len(SEEDS) else f" ({number} seed{'s' * (number > 1)})"
