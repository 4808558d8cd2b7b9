"""The frontier in three tables: highest points, those of tuned training, and the usual length, by kind of labels."""

from collections.abc import Mapping, Sequence

from benchmarks.common.commands import markdown
from benchmarks.common.records import Facts
from benchmarks.frontier.arms import ARMS, KINDS, USUAL
from benchmarks.frontier.curves import (
    EARLY_STOP,
    Curve,
    best_of,
    best_rival,
    curves,
    equal_epochs,
    text_of,
    tops_apart,
    tuned,
)
from benchmarks.frontier.subjects import SUBJECTS

__all__ = ["BEGIN", "summary"]

BEGIN = "<!-- python -m benchmarks.frontier summary -->"
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
        *(f"`{rule}` over it" for rule in RULES), "knowing the wrong labels", "best that prunes nothing, or at random",
        "best that prunes by losses",
    ]  # fmt: skip
    subjects = "; ".join(f"`{name}` is {SUBJECTS[name].title}" for name in results)
    text = f"{markdown(columns, rows)}\n\n{subjects}.\n"
    if both_tuned:
        columns = ["subject", "labels", "best that prunes nothing", "its highest point"]
        columns += ["best that prunes by losses, over it", "knowing the wrong labels, over it"]
        text += f"\nBoth tuned:\n\n{markdown(columns, both_tuned)}\n"
    if usual:
        columns = ["subject", "labels", f"regular, {USUAL} epochs", *(f"`{arm}` over it" for arm in ("random", *RULES))]
        columns += ["knowing the wrong labels", "`bounded` gains of it"]
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
