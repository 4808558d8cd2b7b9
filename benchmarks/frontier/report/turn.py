"""What the run told nothing brings at the usual length, beside regular training of its best length."""

from collections.abc import Mapping, Sequence

from benchmarks.common.markdown import markdown
from benchmarks.common.records import Facts
from benchmarks.frontier.plan import ARMS, KINDS, USUAL
from benchmarks.frontier.subjects import SUBJECTS

__all__ = ["BEGIN", "turn"]

BEGIN = "<!-- python -m benchmarks.frontier turn -->"
SHOWN = ("turn", "turn-decay", "regular-elr", "regular-elr-decay", "turn-elr-decay", "known-wrong")
"""Arms beside regular training."""


def turn(results: Mapping[str, Sequence[Facts]]) -> str:
    """Return the table as Markdown, from the runs of each subject: means over seeds, and in brackets the least."""
    rows = []
    for subject, runs in results.items():
        for kind in KINDS:
            found = _accuracies([run for run in runs if run["kind"] == kind])
            if ("turn", USUAL) not in found:
                continue
            regular = {epochs: _mean(of) for (arm, epochs), of in found.items() if arm == "regular"}
            best = max(regular, key=lambda epochs: regular[epochs])
            cells = [_shown(found.get((arm, USUAL))) for arm in SHOWN]
            rows.append(
                [f"`{subject}`", f"`{kind}`", f"{regular[USUAL]:.1f}", f"{regular[best]:.1f} at {best}", *cells]
            )
    columns = ["subject", "labels", f"regular, {USUAL} epochs", "best length", *(f"`{arm}`" for arm in SHOWN)]
    names = "; ".join(f"`{arm}`: {ARMS[arm].title}" for arm in SHOWN)
    subjects = "; ".join(f"`{name}` is {SUBJECTS[name].title}" for name in results)
    return f"{markdown(columns, rows)}\n\n{names}. {subjects}.\n"


def _accuracies(runs: Sequence[Facts]) -> dict[tuple[str, int], list[float]]:
    found: dict[tuple[str, int], list[float]] = {}
    for run in runs:
        found.setdefault((run["arm"], run["epochs"]), []).append(run["accuracy"])
    most = len(found.get(("regular", USUAL), []))
    return {key: of for key, of in found.items() if key[0] != "regular" or len(of) == most}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def _shown(values: list[float] | None) -> str:
    if not values:
        return ""
    return f"{_mean(values):.1f} ({min(values):.1f})" if len(values) > 1 else f"{values[0]:.1f} (1 seed)"
