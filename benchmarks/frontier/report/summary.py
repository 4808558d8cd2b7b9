"""The frontier in one table: a line for each subject and kind of labels, of highest points."""

from collections.abc import Mapping, Sequence

from benchmarks.common.markdown import markdown
from benchmarks.common.records import Facts
from benchmarks.frontier.curves import Curve, curves
from benchmarks.frontier.distances import best_rival, text_of, tops_apart
from benchmarks.frontier.plan import KINDS, USUAL
from benchmarks.frontier.subjects import SUBJECTS

__all__ = ["BEGIN", "summary"]

BEGIN = "<!-- python -m benchmarks.frontier summary -->"
RULES = ("running-loss", "bounded")


def summary(results: Mapping[str, Sequence[Facts]]) -> str:
    """Return the table as Markdown, from the runs of each subject."""
    rows = []
    for name, of in results.items():
        found = curves(of)
        rows += [_row(name, kind, found[kind]) for kind in KINDS if "regular" in found.get(kind, {})]
    columns = [
        "subject", "labels", "seeds", f"regular, {USUAL} epochs", "regular, best length", "best rival",
        *(f"`{rule}` over it" for rule in RULES), "knowing the wrong labels",
    ]  # fmt: skip
    subjects = "; ".join(f"`{name}` is {SUBJECTS[name].title}" for name in results)
    return f"{markdown(columns, rows)}\n\n{subjects}.\n"


def _row(name: str, kind: str, arms: Mapping[str, Curve]) -> list[str]:
    regular, rival = arms["regular"], best_rival(arms)
    usual, top = regular.mean[regular.epochs.index(USUAL)], arms[rival].top
    return [
        f"`{name}`", f"`{kind}`", str(min(len(arms[arm].seeds) for arm in arms if arm in ("regular", *RULES))),
        f"{usual:.1f}", f"{regular.mean.max():.1f} at {regular.epochs[regular.top]}",
        f"{arms[rival].mean[top]:.1f}, `{rival}`",
        *(text_of(tops_apart(arms, rule, rival)) for rule in RULES), text_of(tops_apart(arms, "known-wrong", rival)),
    ]  # fmt: skip
