"""The table of README: what pruning adds to the best that regular training of any length reaches."""

from collections.abc import Mapping, Sequence

from benchmarks.common.markdown import markdown
from benchmarks.common.records import Facts
from benchmarks.frontier.curves import Curve, curves
from benchmarks.frontier.distances import text_of, tops_apart
from benchmarks.frontier.plan import ARMS, SEEDS, USUAL
from benchmarks.frontier.subjects import SUBJECTS

__all__ = ["BEGIN", "first_page"]

BEGIN = "<!-- python -m benchmarks.frontier first-page -->"
SUBJECT_TITLES = {
    "head-pretrained": "CIFAR-10, head on a pretrained network",
    "conv-cifar10": "CIFAR-10, convolutional network",
    "conv-digits": "digits, convolutional network",
    "mlp-letters": "letters, MLP on a table",
}
"""The subjects that are shown, the most telling first."""
KIND_TITLES = {
    "worse": "people's errors, {}",
    "aggre": "people's errors, {}",
    "random40": "at random, {}",
    "random20": "at random, {}",
    "pairs20": "into a similar class, {}",
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
    heads = ["", "wrong labels", f"regular, {USUAL} epochs", f'`"auto"`, {USUAL}', "regular, best length"]
    return markdown([*heads, "regular, tuned", *ARM_TITLES.values()], lines) + "\n"


def _row(arms: Mapping[str, Curve]) -> list[str]:
    regular = arms["regular"]
    best = f"{regular.mean.max():.1f} at {regular.epochs[regular.top]}"
    added = [text_of(tops_apart(arms, arm, "regular"), len(SEEDS)) for arm in (_tuned(arms), *ARM_TITLES)]
    return [_usual(regular), _usual(arms.get("auto")), best, *added]


def _tuned(arms: Mapping[str, Curve]) -> str:
    """The best arm that is regular training with another dropout, smoothing or weight decay; "" without any."""
    found = [arm for arm in arms if arm in ARMS and ARMS[arm].tunes]
    return max(found, key=lambda arm: arms[arm].mean.max(), default="")


def _usual(curve: Curve | None) -> str:
    """Mean accuracy at the usual length, and of how many seeds if they are not as many as of others."""
    if curve is None:
        return ""
    number = len(curve.seeds)
    of = "" if number == len(SEEDS) else f" ({number} seed{'s' * (number > 1)})"
    return f"{curve.mean[curve.epochs.index(USUAL)]:.1f}{of}"
