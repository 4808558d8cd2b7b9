"""The table of README: what pruning adds to the best that regular training of any length reaches."""

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.common.markdown import markdown
from benchmarks.common.records import Facts
from benchmarks.frontier.curves import Curve, curves
from benchmarks.frontier.distances import Apart, best_of, tops_apart, tuned
from benchmarks.frontier.plan import SEEDS, USUAL
from benchmarks.frontier.subjects import SUBJECTS

__all__ = ["BEGIN", "first_page"]

BEGIN = "<!-- python -m benchmarks.frontier first-page -->"
SUBJECT_TITLES = {
    "head-pretrained": "CIFAR-10, pretrained",
    "conv-cifar10": "CIFAR-10, convolutions",
    "conv-digits": "digits, convolutions",
    "mlp-letters": "letters, MLP",
}
"""The subjects that are shown, the most telling first."""
KIND_TITLES = {
    "worse": "people's, {}",
    "aggre": "people's, {}",
    "random40": "at random, {}",
    "random20": "at random, {}",
    "pairs20": "similar class, {}",
    "confusable20": "a weak model's, {}",
    "clean": "none",
}
ARM_TITLES = {
    "running-loss": "`RunningLoss`",
    "bounded": "`BoundedLoss`",
    "random": "at random",
    "known-wrong": "if known",
}


def first_page(results: Mapping[str, Sequence[Facts]]) -> str:
    """Return the table as Markdown, from the runs of each subject."""
    lines = []
    for name, title in SUBJECT_TITLES.items():
        runs = results.get(name, ())
        wrong = {run["kind"]: run["wrong_percent"] for run in runs}
        found = curves(runs, SUBJECTS[name].lengths)
        kinds = [kind for kind in KIND_TITLES if {"regular", "bounded"} <= found.get(kind, {}).keys()]
        for number, kind in enumerate(kinds):
            errors = KIND_TITLES[kind].format(f"{wrong[kind]:.0f} %")
            lines.append(["" if number else title, errors, *_row(found[kind])])
    heads = ["", "wrong labels", f"{USUAL} epochs", f'`"auto"`, {USUAL}', "best length"]
    return markdown([*heads, "tuned", *ARM_TITLES.values()], lines) + "\n"


def _row(arms: Mapping[str, Curve]) -> list[str]:
    regular = arms["regular"]
    tuned_best = best_of(arms, tuned(arms, "regular"))
    added = [_short(tops_apart(arms, arm, "regular")) for arm in (tuned_best, *ARM_TITLES)]
    return [_usual(regular), _usual(arms.get("auto")), regular.highest, *added]


def _short(apart: Apart | None) -> str:
    """The mean and the standard deviation over seeds, and how many if they are not as many as of others."""
    if apart is None:
        return ""
    number = len(apart.points)
    # Adding 0 makes -0.0 a plain one.
    middle = f"{round(apart.mean, 1) + 0.0:+.1f}"
    return f"{middle} ±{np.std(apart.points, ddof=1):.1f}{_of(number)}" if number > 1 else f"{middle}{_of(number)}"


def _usual(curve: Curve | None) -> str:
    """Mean accuracy at the usual length, and of how many seeds if they are not as many as of others."""
    if curve is None:
        return ""
    return f"{curve.mean[curve.epochs.index(USUAL)]:.1f}{_of(len(curve.seeds))}"


def _of(number: int) -> str:
    """How many seeds, if they are not as many as of others."""
    return "" if number == len(SEEDS) else f" ({number} seed{'s' * (number > 1)})"
