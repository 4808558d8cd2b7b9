"""The frontier as tables: every point, the highest points and how far they lie apart, and the distance at equal visits.

Written between the markers of a page, as it is printed.
"""

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.common.commands import markdown
from benchmarks.common.records import Facts
from benchmarks.frontier.arms import ARMS, KINDS, Lengths
from benchmarks.frontier.curves import (
    EARLY_STOP,
    Curve,
    best_rival,
    curves,
    equal_visits,
    own_known,
    own_regular,
    text_of,
    tops_apart,
)
from benchmarks.frontier.subjects import SUBJECTS

__all__ = ["BEGIN", "TITLES", "all_tables", "share_of_known", "tables", "title"]

BEGIN = "<!-- python -m benchmarks.frontier table -->"
TITLES = {
    "worse": "people's errors, the worst of three answers",
    "aggre": "people's errors, the majority of three answers",
    "random40": "wrong at random",
    "random20": "wrong at random",
    "confusable20": "a weak model's errors",
    "pairs20": "wrong, into a similar class",
    "clean": "as they are",
}
ORDER = ("regular", EARLY_STOP, *(arm for arm in ARMS if arm != "regular"))
Arms = Mapping[str, Curve]


def all_tables(results: Mapping[str, Sequence[Facts]]) -> str:
    """Return the tables of all subjects as Markdown, a section for each."""
    parts = [(SUBJECTS[name], name, of) for name, of in results.items()]
    sections = [f"## `{name}`: {of.title}\n\n{tables(runs, of.lengths)}" for of, name, runs in parts]
    return "\n".join(sections)


def tables(results: Sequence[Facts], lengths: Lengths = Lengths()) -> str:  # noqa: B008, it is frozen
    """Return all tables of a subject, a section for each of its kinds of labels."""
    found = curves(results, lengths)
    parts = [_preface(results)] if results else []
    for kind in [kind for kind in KINDS if kind in found]:
        arms = {arm: found[kind][arm] for arm in ORDER if arm in found[kind]}
        parts += [f"### `{kind}`: {title(kind, results)}", _points(arms), _tops(arms), _equal(arms)]
    return "\n\n".join(part for part in parts if part) + "\n"


def title(kind: str, results: Iterable[Facts]) -> str:
    """Say what a kind of labels is, and how many of those trained on are wrong."""
    wrong = next(run["wrong_percent"] for run in results if run["kind"] == kind)
    return f"{TITLES[kind]} ({wrong:.0f}% wrong)" if wrong else TITLES[kind]


def _preface(results: Sequence[Facts]) -> str:
    machines = ", ".join(sorted({run["hardware"] for run in results}))
    versions = ", ".join(f"{name} {number}" for name, number in results[0]["versions"].items())
    return f"{len(results)} runs on {machines}, with {versions}."


def _points(arms: Arms) -> str:
    """Every point: a row for each arm, a column for each length."""
    lengths = sorted({length for curve in arms.values() for length in curve.epochs})
    rows = []
    for arm, curve in arms.items():
        spread = [f" ±{each:.1f}" if len(curve.seeds) > 1 else "" for each in curve.spread]
        at = {length: f"{curve.mean[n]:.1f}{spread[n]}" for n, length in enumerate(curve.epochs)}
        at[curve.epochs[curve.top]] = f"**{at[curve.epochs[curve.top]]}**"
        rows.append([f"`{arm}`", str(len(curve.seeds)), _factor(curve), *(at.get(length, "") for length in lengths)])
    return markdown(["arm", "seeds", "visits", *(f"{length} epochs" for length in lengths)], rows)


def _factor(curve: Curve) -> str:
    """Visits over those of as many epochs on all samples."""
    shares = [100 * visits / length for visits, length in zip(curve.visits, curve.epochs, strict=True)]
    low, high = round(min(shares)), round(max(shares))
    return f"{low}%" if high - low <= 1 else f"{low} to {high}%"


def _tops(arms: Arms) -> str:
    """The highest point of each arm, and how far it lies above others'."""
    rival = best_rival(arms)
    columns = [
        "arm", "highest", "epochs", "visits", "by labels held out", "over its regular", "of knowing",
        f"over the best rival, `{rival}`",
    ]  # fmt: skip
    rows = []
    for arm, curve in arms.items():
        top, own = curve.top, own_regular(arm)
        rows.append([
            f"`{arm}`", f"{curve.mean[top]:.1f}", str(curve.epochs[top]), f"{curve.visits[top]:.1f}",
            f"{curve.chosen.mean():.1f}", "" if arm == own else text_of(tops_apart(arms, arm, own)),
            _share(arms, arm), "" if arm == rival else text_of(tops_apart(arms, arm, rival)),
        ])  # fmt: skip
    return markdown(columns, rows)


def _share(arms: Arms, arm: str) -> str:
    """What of the gain of knowing the wrong labels it has; "" where that is not known or no gain."""
    share = share_of_known(arms, arm)
    return "" if share is None or arm == own_known(arm) else f"{100 * share:.0f}%"


def share_of_known(arms: Arms, arm: str) -> float | None:
    """The gain of an arm's highest point over its regular one's, in units of what knowing the wrong labels gains."""
    known, over = tops_apart(arms, own_known(arm), own_regular(arm)), tops_apart(arms, arm, own_regular(arm))
    if known is None or over is None or known.mean <= 0 or arm == own_regular(arm):
        return None
    return over.mean / known.mean


def _equal(arms: Arms) -> str:
    """Pruned arms less their own regular one within as many visits, a column for each length."""
    rows, lengths = [], sorted({length for arm, curve in arms.items() if _pruned(arm) for length in curve.epochs})
    for arm in filter(_pruned, arms):
        apart = equal_visits(arms, arm, own_regular(arm))
        if apart:
            rows.append([f"`{arm}`", *(text_of(apart.get(length)) for length in lengths)])
    if not rows:
        return ""
    return markdown(["at equal visits, over its regular", *(f"{length} epochs" for length in lengths)], rows)


def _pruned(arm: str) -> bool:
    return arm != EARLY_STOP and bool(ARMS[arm].policy)
