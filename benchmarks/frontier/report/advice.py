"""What `advise` says of each network with its own curve left out, beside what is true and what pruning brought.

It is asked after the fewest epochs that it takes, of runs of the usual length.
"""

import statistics
from collections import Counter
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
"""A share that lies so near to the true one is good enough, if the range at random doesn't hold it."""

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
        """Whether the range holds the true share: that of all errors, from ``low`` to ``most``."""
        return self.low <= truth <= self.most

    def holds_at_random(self, truth: float) -> bool:
        """Whether the share is near the true one, or the range of errors at random holds that, up to ``high``."""
        return abs(self.share - truth) <= NEAR or self.low <= truth <= self.high


def curve_of(runs: Sequence[Facts]) -> tuple[float, ...]:
    """Of a subject's runs the share of the samples that are likely wrong, for each of ``WRONG``."""
    kinds = ("clean" if not share else f"random{round(100 * share)}" for share in WRONG)
    likely = ([run["signs"]["likely"] for run in runs if run["kind"] == kind] for kind in kinds)
    return tuple(round(statistics.mean(values), 3) for values in likely)


def advice(signs: Mapping[str, Sequence[Facts]], frontier: Mapping[str, Sequence[Facts]]) -> str:
    """Return the table as Markdown, and a line that counts, from the recorded runs of each subject."""
    rows, below, missed = [], 0, 0
    held, later = Counter[str](), Counter[str]()
    for subject, runs in signs.items():
        arms = curves(frontier.get(subject, ()), SUBJECTS[subject].lengths)
        for kind in sorted({run["kind"] for run in runs}, key=_place):
            of = [run for run in runs if run["kind"] == kind]
            truth, said = statistics.mean(run["wrong_percent"] for run in of) / 100, _said(subject, of, "early")
            gain = _gain(arms.get(kind, {}))
            for count, one in ((held, said), (later, _said(subject, of, "signs"))):
                count.update(all=one.holds(truth), random=one.holds_at_random(truth))
            below += said.prune and gain is not None and gain < 0
            missed += not said.prune and gain is not None and gain >= MISSED
            rows.append(_row(subject, kind, len(of), truth, said, gain, arms.get(kind, {})))
    columns = (
        "subject", "labels", "seeds", "wrong", "said", "holds", "if at random", "holds", "advice",
        f"pruned, {USUAL} epochs, over regular", "or train", "best length",
    )  # fmt: skip
    counted = (
        f"The range holds the truth in {held['all']} of {len(rows)} rows, "
        f"and after {WATCHED} epochs in {later['all']}. "
        "If all errors are taken to be at random, the share is within 10 points, or its range holds the truth, in "
        f"{held['random']}, and after {WATCHED} epochs in {later['random']}. Wrong advice: to prune, where that ended "
        f"below regular training, {below}; not to, where pruning would have gained {MISSED} points or more, {missed}."
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
    gain: float | None,
    arms: Mapping[str, Curve],
) -> list[str]:
    regular = arms.get("regular")
    return [
        f"`{subject}`", f"`{kind}`", str(seeds), f"{truth:.0%}",
        f"{said.low:.0%} to {said.most:.0%}", "yes" if said.holds(truth) else "no",
        f"{said.share:.0%} ({said.low:.0%} to {said.high:.0%})", "yes" if said.holds_at_random(truth) else "no",
        "prune" if said.prune else "don't",
        "" if gain is None else f"{gain:+.1f}",
        "" if said.shorter is None else f"{said.shorter} epochs",
        "" if regular is None else f"{regular.epochs[regular.top]} epochs",
    ]  # fmt: skip


def _place(kind: str) -> tuple[int, int]:
    """The kinds of the frontier first, then other shares of random errors, the fewest first."""
    return (KINDS.index(kind), 0) if kind in KINDS else (len(KINDS), int(kind.removeprefix("random")))
