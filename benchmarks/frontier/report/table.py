"""The frontier as tables, in full and in short.

In full: every point, the highest points and how far they lie apart, and the distance at equal visits.
In short: the highest points, those of tuned training, and the usual length, by kind of labels.

Written between the markers of a page, as it is printed.
"""

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.common.commands import markdown
from benchmarks.common.records import Facts
from benchmarks.frontier.arms import ARMS, KINDS, USUAL, Lengths
from benchmarks.frontier.curves import (
    EARLY_STOP,
    Curve,
    best_of,
    best_rival,
    curves,
    equal_epochs,
    equal_visits,
    own_known,
    own_regular,
    text_of,
    tops_apart,
    tuned,
)
from benchmarks.frontier.subjects import SUBJECTS

__all__ = ["BEGIN", "BEGIN_SUMMARY", "TITLES", "all_tables", "share_of_known", "summary", "tables", "title"]


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
        "arm", "highest", "epochs", "visits", "by labels held out", "over its regular", "of the oracle's",
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


BEGIN_SUMMARY = "<!-- python -m benchmarks.frontier summary -->"
RULES = ("running-loss", "bounded")


def summary(results: Mapping[str, Sequence[Facts]]) -> str:
    """Return the tables as Markdown, from the runs of each subject."""
    rows, both_tuned, usual = [], [], []
    for name, of in results.items():
        found = curves(of, SUBJECTS[name].lengths)
        for kind, arms in ((kind, found[kind]) for kind in KINDS if "regular" in found.get(kind, {})):
            rows.append(_row(name, kind, arms))
            both_tuned += _of_tuned_training(name, kind, arms)
            usual += _of_the_usual_length(name, kind, arms)
    columns = [
        "subject", "labels", "seeds", f"regular, {USUAL} epochs", "regular, best length",
        *(f"`{rule}` over it" for rule in RULES), "oracle over it", "best that prunes nothing, or at random",
        "best that prunes by losses",
    ]  # fmt: skip
    subjects = "; ".join(f"`{name}` is {SUBJECTS[name].title}" for name in results)
    text = f"{markdown(columns, rows)}\n\n{subjects}.\n"
    if both_tuned:
        columns = ["subject", "labels", "best that prunes nothing", "its highest point"]
        columns += ["best that prunes by losses, over it", "oracle, over it"]
        text += f"\nBoth tuned:\n\n{markdown(columns, both_tuned)}\n"
    if usual:
        columns = ["subject", "labels", f"regular, {USUAL} epochs", *(f"`{arm}` over it" for arm in ("random", *RULES))]
        columns += ["oracle over it", "`bounded` gains of that"]
        text += f"\nAll of {USUAL} epochs:\n\n{markdown(columns, usual)}\n"
    return text


def _row(name: str, kind: str, arms: Mapping[str, Curve]) -> list[str]:
    regular = arms["regular"]
    usual = regular.mean[regular.epochs.index(USUAL)]
    rules = [arm for arm in _told(arms) if ARMS[arm].policy not in ("", "random", "known-wrong")]
    return [
        f"`{name}`", f"`{kind}`", str(min(len(arms[arm].seeds) for arm in arms if arm in ("regular", *RULES))),
        f"{usual:.1f}", regular.highest,
        *(text_of(tops_apart(arms, arm, "regular")) for arm in (*RULES, "known-wrong")),
        _named(arms, best_rival({arm: arms[arm] for arm in (*_told(arms), EARLY_STOP)})),
        _named(arms, best_of(arms, rules)) if rules else "",
    ]  # fmt: skip


def _told(arms: Mapping[str, Curve]) -> list[str]:
    """The arms with runs of their own, but for those of one seed among many."""
    fewest = min(2, len(arms["regular"].seeds))
    return [arm for arm, curve in arms.items() if arm in ARMS and len(curve.seeds) >= fewest]


def _of_tuned_training(name: str, kind: str, arms: Mapping[str, Curve]) -> list[list[str]]:
    """Each at its best dropout, smoothing or weight decay, of those that were run: all samples, rules, knowing."""
    told = {arm: arms[arm] for arm in _told(arms)}
    regular, rule, known = (
        best_of(told, [arm for own in names if own in told for arm in (own, *tuned(told, own))])
        for names in (["regular"], RULES, ["known-wrong"])
    )
    if not rule or not tuned(told, "regular"):
        return []
    seeds = len(arms["regular"].seeds)
    over = [text_of(tops_apart(arms, arm, regular), seeds) for arm in (rule, known)]
    cells = [f"`{arm}` {above}" if arm else "" for arm, above in zip((rule, known), over, strict=True)]
    return [[f"`{name}`", f"`{kind}`", f"`{regular}`", arms[regular].highest, *cells]]


def _of_the_usual_length(name: str, kind: str, arms: Mapping[str, Curve]) -> list[list[str]]:
    """What rules gain over regular training of as many epochs, if it is known what there is to gain."""
    found = {arm: equal_epochs(arms, arm, "regular", USUAL) for arm in ("random", *RULES, "known-wrong")}
    known, ours = found["known-wrong"], found["bounded"]
    if known is None or ours is None:
        return []
    regular = arms["regular"]
    usual = regular.mean[regular.epochs.index(USUAL)]
    part = f"{ours.mean / known.mean:.0%}" if known.mean > 0 else ""
    return [[f"`{name}`", f"`{kind}`", f"{usual:.1f}", *(text_of(apart) for apart in found.values()), part]]


def _named(arms: Mapping[str, Curve], arm: str) -> str:
    """An arm, and how far its highest point lies above regular training's."""
    above = text_of(tops_apart(arms, arm, "regular"), len(arms["regular"].seeds))
    return "`regular`" if arm == "regular" else f"`{arm}` {above}"
