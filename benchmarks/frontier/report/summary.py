"""The frontier in two tables, of highest points and of the usual length: a line for each subject and kind of labels."""

from collections.abc import Mapping, Sequence

from benchmarks.common.markdown import markdown
from benchmarks.common.records import Facts
from benchmarks.frontier.curves import Curve, curves
from benchmarks.frontier.distances import best_rival, equal_epochs, text_of, tops_apart
from benchmarks.frontier.plan import ARMS, KINDS, USUAL
from benchmarks.frontier.subjects import SUBJECTS

__all__ = ["BEGIN", "summary"]

BEGIN = "<!-- python -m benchmarks.frontier summary -->"
RULES = ("running-loss", "bounded")


def summary(results: Mapping[str, Sequence[Facts]]) -> str:
    """Return the tables as Markdown, from the runs of each subject."""
    rows, usual = [], []
    for name, of in results.items():
        found = curves(of, SUBJECTS[name].lengths)
        for kind, arms in ((kind, found[kind]) for kind in KINDS if "regular" in found.get(kind, {})):
            rows.append(_row(name, kind, arms))
            usual += _of_the_usual_length(name, kind, arms)
    columns = [
        "subject", "labels", "seeds", f"regular, {USUAL} epochs", "regular, best length",
        *(f"`{rule}` over it" for rule in RULES), "knowing the wrong labels", "best that prunes nothing, or at random",
        "best that prunes by losses",
    ]  # fmt: skip
    subjects = "; ".join(f"`{name}` is {SUBJECTS[name].title}" for name in results)
    highest = f"{markdown(columns, rows)}\n\n{subjects}.\n"
    if not usual:
        return highest
    columns = ["subject", "labels", f"regular, {USUAL} epochs"]
    columns += [f"`{arm}` over it" for arm in ("random", *RULES)] + [
        "knowing the wrong labels",
        "`bounded` gains of it",
    ]
    return f"{highest}\nAll of {USUAL} epochs:\n\n{markdown(columns, usual)}\n"


def _row(name: str, kind: str, arms: Mapping[str, Curve]) -> list[str]:
    regular = arms["regular"]
    usual = regular.mean[regular.epochs.index(USUAL)]
    told = [arm for arm in arms if len(arms[arm].seeds) >= min(2, len(regular.seeds))]  # not of one seed among many
    rules = [arm for arm in told if arm in ARMS and ARMS[arm].policy not in ("", "random", "known-wrong")]
    return [
        f"`{name}`", f"`{kind}`", str(min(len(arms[arm].seeds) for arm in arms if arm in ("regular", *RULES))),
        f"{usual:.1f}", f"{regular.mean.max():.1f} at {regular.epochs[regular.top]}",
        *(text_of(tops_apart(arms, arm, "regular")) for arm in (*RULES, "known-wrong")),
        _named(arms, best_rival({arm: arms[arm] for arm in told})),
        _named(arms, max(rules, key=lambda arm: arms[arm].mean.max())) if rules else "",
    ]  # fmt: skip


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
