"""What a run that is given nothing brings beside the best length, and where it would start in runs on all samples."""

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.common.commands import markdown
from benchmarks.common.records import Facts
from benchmarks.frontier.arms import ARMS, KINDS, USUAL
from benchmarks.frontier.subjects import SUBJECTS
from prunedata.plan.onset import MEAN_OF, Figures, find_onset

__all__ = ["BEGIN", "BEGIN_REPLAY", "BEGIN_VARIED", "replay", "turn", "varied"]


BEGIN, BEGIN_VARIED = "<!-- python -m benchmarks.frontier turn -->", "<!-- python -m benchmarks.frontier varied -->"
SHOWN = ("turn", "turn-decay", "regular-elr", "regular-elr-decay", "turn-elr-decay", "known-wrong")
"""Arms beside regular training."""
FALL, BELOW_BEST, BELOW_END = 1.0, 0.5, 0.3
"""In points: how far regular training falls from its best length, and how far below it ``turn`` may end."""
VARIED = (
    "turn", "turn-accuracy", "turn-500", "turn-100", "turn-holdout", "regular-step", "turn-step", "regular-constant",
    "turn-constant", "regular-warm", "turn-warm",
)  # fmt: skip
"""Those told by fewer labels, or by none, and those with other learning rates."""


def turn(results: Mapping[str, Sequence[Facts]]) -> str:
    """Return the table as Markdown, from the runs of each subject: means over seeds, and in brackets the least."""
    return f"{_table(results, SHOWN)}\n{held(results)}\n"


def held(results: Mapping[str, Sequence[Facts]], arm: str = "turn") -> str:
    """Say on how many kinds of labels an arm ends where it should, by means over seeds."""
    falls, steady, untouched = [], [], 0
    for runs in results.values():
        for kind in KINDS:
            found = _accuracies([run for run in runs if run["kind"] == kind])
            if (arm, USUAL) not in found:
                continue
            regular = {epochs: _mean(of) for (other, epochs), of in found.items() if other == "regular"}
            ends, end, best = _mean(found[arm, USUAL]), regular[USUAL], max(regular.values())
            if best - end >= FALL:
                falls.append(round(ends - best, 2) >= -BELOW_BEST)
            else:
                steady.append(round(ends - end, 2) >= -BELOW_END)
                untouched += not any(
                    run["saved_percent"] for run in runs
                    if (run["kind"], run["arm"], run["epochs"]) == (kind, arm, USUAL)
                )  # fmt: skip
    return (
        f"Where regular training falls by {FALL:g} point or more, `{arm}` ends at most {BELOW_BEST:g} below the "
        f"best length on {sum(falls)} of {len(falls)} kinds of labels. On the {len(steady)} other kinds it ends at "
        f"most {BELOW_END:g} below regular training on {sum(steady)}, and on {untouched} no run left anything out."
    )


def varied(results: Mapping[str, Sequence[Facts]]) -> str:
    """Return the table of other figures and rates, of the subjects that were run so."""
    some = {subject: runs for subject, runs in results.items() if any(run["arm"] == "turn-holdout" for run in runs)}
    told = "\n".join(held(some, arm) for arm in ("turn-accuracy", "turn-holdout"))
    return f"{_table(some, VARIED)}\n{told}\n"


def _table(results: Mapping[str, Sequence[Facts]], shown: Sequence[str]) -> str:
    rows = []
    for subject, runs in results.items():
        for kind in KINDS:
            found = _accuracies([run for run in runs if run["kind"] == kind])
            if ("turn", USUAL) not in found:
                continue
            regular = {epochs: _mean(of) for (arm, epochs), of in found.items() if arm == "regular"}
            best = max(regular, key=lambda epochs: regular[epochs])
            cells = [_shown(found.get((arm, USUAL))) for arm in shown]
            rows.append(
                [f"`{subject}`", f"`{kind}`", f"{regular[USUAL]:.1f}", f"{regular[best]:.1f} at {best}", *cells]
            )
    columns = ["subject", "labels", f"regular, {USUAL} epochs", "best length", *(f"`{arm}`" for arm in shown)]
    names = "; ".join(f"`{arm}`: {ARMS[arm].title}" for arm in shown)
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


BEGIN_REPLAY = "<!-- python -m benchmarks.frontier replay -->"
FALLS, STEADY = 2.0, 0.5
"""In points of test accuracy: so much is lost where it should start, and less where it should not."""


def replay(results: Mapping[str, Sequence[Facts]]) -> str:
    """Return, for each subject, how many runs fall, how many don't, and in how many of each it starts, as Markdown."""
    rows, sums = [], np.zeros(7, int)
    for subject, facts in results.items():
        runs = [run for run in facts if not ARMS[run["arm"]].policy and run["epochs"] >= MEAN_OF]
        fell = np.array([_figures(run["curves"]["accuracy"]).lost for run in runs])
        starts = np.array([_figures(run["curves"]["validation"]).onset is not None for run in runs], bool)
        clean = np.array([run["kind"] == "clean" for run in runs], bool)
        parts = (fell >= FALLS, (fell < STEADY) & ~clean, (fell < STEADY) & clean)
        counts = [len(runs), *(int(one.sum()) for part in parts for one in (part, part & starts))]
        rows.append([f"`{subject}`", *(f"{count:,}" for count in counts)])
        sums += counts
    heads = ["subject", "runs on all samples", f"fall by {FALLS:g} points", "start", f"fall by less than {STEADY:g}"]
    heads += ["start", "such on clean labels", "start"]
    return f"{markdown(heads, [*rows, ['together', *(f'{count:,}' for count in sums)]])}\n"


def _figures(curve: Sequence[float]) -> Figures:
    return find_onset([{"number": at, "validation": one, "lower_is_better": False} for at, one in enumerate(curve)])
