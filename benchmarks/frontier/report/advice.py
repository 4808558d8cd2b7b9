"""What `advise` says of each network with its own curve left out, beside what is true and what pruning brought.

It is asked after the fewest epochs that it takes, of runs of the usual length.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.common.markdown import markdown
from benchmarks.common.records import Facts
from benchmarks.frontier.curves import Curve, curves
from benchmarks.frontier.distances import equal_visits
from benchmarks.frontier.plan import KINDS, USUAL
from benchmarks.frontier.signs import WATCHED
from benchmarks.frontier.subjects import SUBJECTS
from prunedata.findings.by_heart import epochs_before
from prunedata.findings.wrong_labels import LIKELY_CURVES, WRONG, between, is_worth_pruning, most_wrong

__all__ = ["BEGIN", "advice", "curve_of"]

BEGIN = "<!-- python -m benchmarks.frontier advice -->"
NEAR = 0.1
"""A share that lies so near to the true one is good enough, if its range doesn't hold it."""

MISSED = 0.5
"""Points that pruning has to gain to be missed where it was not advised."""


@dataclass(frozen=True)
class Said:
    """What is said of the runs of a subject on one kind of labels: the means of its seeds."""

    share: float
    low: float
    high: float
    most: float
    prune: bool
    shorter: int | None

    def holds(self, truth: float) -> bool:
        """Whether the share is near the true one, or the range holds that."""
        return abs(self.share - truth) <= NEAR or self.low <= truth <= self.high


def curve_of(runs: Sequence[Facts]) -> tuple[float, ...]:
    """Of a subject's runs the share of the samples that are likely wrong, for each of ``WRONG``."""
    kinds = ("clean" if not share else f"random{round(100 * share)}" for share in WRONG)
    likely = ([run["signs"]["likely"] for run in runs if run["kind"] == kind] for kind in kinds)
    return tuple(round(statistics.mean(values), 3) for values in likely)


def advice(signs: Mapping[str, Sequence[Facts]], frontier: Mapping[str, Sequence[Facts]]) -> str:
    """Return the table as Markdown, and a line that counts, from the recorded runs of each subject."""
    rows, held, within, later, judged, below, missed = [], 0, 0, 0, 0, 0, 0
    for subject, runs in signs.items():
        arms = curves(frontier.get(subject, ()), SUBJECTS[subject].lengths)
        for kind in sorted({run["kind"] for run in runs}, key=_place):
            of = [run for run in runs if run["kind"] == kind]
            truth, said = statistics.mean(run["wrong_percent"] for run in of) / 100, _said(subject, of, "early")
            holds, later = said.holds(truth), later + _said(subject, of, "signs").holds(truth)
            gain = _gain(arms.get(kind, {}))
            judged, held, within = judged + 1, held + holds, within + (said.low <= truth <= said.most)
            below += said.prune and gain is not None and gain < 0
            missed += not said.prune and gain is not None and gain >= MISSED
            rows.append(_row(subject, kind, len(of), truth, said, holds, gain, arms.get(kind, {})))
    columns = (
        "subject", "labels", "seeds", "wrong", "said", "range", "holds", "at most", "advice",
        f"pruned, {USUAL} epochs, over regular", "or train", "best length",
    )  # fmt: skip
    counted = (
        f"The share is within 10 points, or its range holds the truth, in {held} of {judged} rows, and after {WATCHED} "
        f"epochs in {later}. From the low end to "
        f"what may be wrong at most, errors that look like another class with it, {within} of {judged} hold it. Wrong "
        f"advice: to prune, where that ended below regular training, {below}; not to, where pruning would have gained "
        f"{MISSED} points or more, {missed}."
    )
    return f"{markdown(columns, rows)}\n\n{counted}\n"


def _said(subject: str, runs: Sequence[Facts], when: str) -> Said:
    others = [curve for name, curve in LIKELY_CURVES.items() if name != subject]
    read = [between(run[when]["likely"], run["samples"], others) for run in runs]
    share, low, high = (statistics.mean(one[part] for one in read) for part in range(3))
    most = statistics.mean(most_wrong(run[when]["hard"], top) for run, (_, _, top) in zip(runs, read, strict=True))
    prune = is_worth_pruning(share, statistics.mean(run[when]["certain"] for run in runs))
    lengths = [epochs_before(run["above_guess"], share) for run in runs]
    known = [length for length in lengths if length is not None]
    shorter = round(statistics.mean(known)) if prune and len(known) == len(lengths) else None
    return Said(share, low, high, most, prune, shorter)


def _gain(arms: Mapping[str, Curve]) -> float | None:
    """Points of `RunningLoss` at the usual length over the best regular run of as many visits or fewer."""
    found = equal_visits(arms, "running-loss", "regular") if "running-loss" in arms else {}
    return found[USUAL].mean if USUAL in found else None


def _row(
    subject: str,
    kind: str,
    seeds: int,
    truth: float,
    said: Said,
    holds: bool,
    gain: float | None,
    arms: Mapping[str, Curve],
) -> list[str]:
    regular = arms.get("regular")
    return [
        f"`{subject}`", f"`{kind}`", str(seeds), f"{truth:.0%}", f"{said.share:.0%}",
        f"{said.low:.0%} to {said.high:.0%}",
        "yes" if holds else "no", f"{said.most:.0%}", "prune" if said.prune else "don't",
        "" if gain is None else f"{gain:+.1f}",
        "" if said.shorter is None else f"{said.shorter} epochs",
        "" if regular is None else f"{regular.epochs[regular.top]} epochs",
    ]  # fmt: skip


def _place(kind: str) -> tuple[int, int]:
    """The kinds of the frontier first, then other shares of random errors, the fewest first."""
    return (KINDS.index(kind), 0) if kind in KINDS else (len(KINDS), int(kind.removeprefix("random")))
