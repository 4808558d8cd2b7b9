"""What ``policy="auto"`` brings at the usual length: given nothing, a validation figure, or labels."""

from collections.abc import Mapping, Sequence
from statistics import mean

from benchmarks.common.commands import markdown
from benchmarks.common.records import Facts
from benchmarks.frontier.arms import ARMS, KINDS, USUAL

__all__ = ["ALONE", "AUTO", "BEGIN", "BEGIN_SHORT", "REGULAR", "SHORT", "TOLD", "auto", "short"]

BEGIN, BEGIN_SHORT = "<!-- python -m benchmarks.frontier auto -->", "<!-- python -m benchmarks.frontier short -->"
REGULAR, ALONE, TOLD = "regular-delivered", "auto-alone", "auto-told"
"""Regular training in the order in which a run of the library delivers samples; and that run."""
AUTO = (ALONE, TOLD, "auto-labels")
BESIDE = ("random", "turn", *AUTO, "known-wrong")
SHORT = (2, 3, 5)
"""Epochs of short runs."""
FALL, BELOW = 1.0, 0.3
"""Points that regular training ends below its best length, where it memorizes; and that others may end below it."""


def auto(results: Mapping[str, Sequence[Facts]]) -> str:
    """Return the tables as Markdown, from the runs of each subject that has runs of today's rule."""
    ends, counts, gains = [], [], []
    for subject, runs in results.items():
        for kind in KINDS:
            some = [run for run in runs if run["kind"] == kind]
            seeds = {run["seed"] for run in some if run["arm"] == ALONE}
            arms = {arm: [run for run in _of(some, arm) if run["seed"] in seeds] for arm in (REGULAR, *BESIDE)}
            if not (arms[ALONE] and arms[REGULAR] and len(arms[REGULAR]) == len(arms[ALONE])):
                continue
            head, regular = [f"`{subject}`", f"`{kind}`"], _accuracy(arms[REGULAR])
            best, epochs = _best_length(some)
            fewer = {arm for arm in AUTO if len(arms[arm]) < len(arms[ALONE])}  # of other seeds, they can't be compared
            cells = ["" if arm in fewer else _shown(arms[arm]) for arm in BESIDE]
            ends.append([*head, str(len(arms[ALONE])), _shown(arms[REGULAR]), f"{best:.1f} at {epochs}", *cells])
            counts.append([*head, f"{arms[ALONE][0]['wrong_percent']:.1f}", *(_left_out(arms[arm]) for arm in AUTO)])
            known = _accuracy(arms["known-wrong"]) - regular if arms["known-wrong"] else None
            gains.append(
                (kind, best - regular, known, {arm: _accuracy(arms[arm]) - regular for arm in AUTO if arms[arm]})
            )
    if not ends:
        raise ValueError(f"Expected recorded runs of {ALONE}. Got none: python -m benchmarks.frontier run.")
    heads = ("subject", "labels", "seeds", f"regular, {USUAL} epochs", "best length", *(f"`{arm}`" for arm in BESIDE))
    told = ". ".join(f"`{arm}`: {ARMS[arm].title}" for arm in AUTO)
    return "\n\n".join([
        markdown(heads, ends), f"{told}. `turn`: the rule before, with the figure of `auto-told`.",
        *(_said(gains, arm) for arm in (ALONE, TOLD)),
        "From which epoch each seed leaves samples out (`-`: never), how many percent of the samples, and in brackets "
        "how many percent of these are wrong:",
        markdown((*heads[:2], "wrong", *(f"`{arm}`" for arm in AUTO)), counts) + "\n",
    ])  # fmt: skip


def short(results: Mapping[str, Sequence[Facts]]) -> str:
    """Return what it brings in runs of a few epochs, beside the same orders on all samples, as Markdown."""
    rows, gains = [], []
    for subject, runs in results.items():
        for kind in KINDS:
            cells = []
            for epochs in SHORT:
                regular, alone = (
                    {run["seed"]: run for run in _of(runs, arm, epochs) if run["kind"] == kind}
                    for arm in (REGULAR, ALONE)
                )
                seeds = sorted(regular.keys() & alone.keys())
                if not seeds:
                    break
                both = _accuracy([regular[seed] for seed in seeds]), _accuracy([alone[seed] for seed in seeds])
                gains.append(both[1] - both[0])
                out = _left_out([alone[seed] for seed in seeds])
                cells += [f"{both[0]:.1f}", f"{gains[-1]:+.1f}", "" if out.endswith(" 0.0") else out]
            else:
                rows.append([f"`{subject}`", f"`{kind}`", str(len(seeds)), *cells])
    columns = (column for epochs in SHORT for column in (f"{epochs} epochs, regular", f"`{ALONE}`", "left out"))
    return (
        "Short runs, given nothing, beside training on all samples in the same orders: on "
        f"{len(gains)} kinds and lengths they end {min(gains, default=0):+.1f} to {max(gains, default=0):+.1f} from "
        "it, because runs of up to five epochs leave nothing out.\n\n"
        f"{markdown(('subject', 'labels', 'seeds', *columns), rows)}\n"
    )


def _said(gains: Sequence[tuple[str, float, float | None, dict[str, float]]], arm: str) -> str:
    """Say where an arm brings half of what the oracle gains, and how far below regular training it ends."""
    some = [(kind, fall, known, of[arm]) for kind, fall, known, of in gains if arm in of]
    falls = [(kind, known, gain) for kind, fall, known, gain in some if known is not None and fall >= FALL]
    similar = [one for one in falls if one[0].startswith(("confusable", "pairs"))]
    chance = [one for one in falls if one not in similar]
    halves, others = (sum(gain >= known / 2 for _, known, gain in each) for each in (chance, similar))
    ours, theirs = sum(gain for _, _, gain in chance), sum(known for _, known, _ in chance)
    clean = [gain for kind, *_, gain in some if kind == "clean"]
    near = sum(gain >= -BELOW for *_, gain in some)
    return " ".join([
        f"**`{arm}`**, where regular training ends {FALL:g} point or more below its best length: if labels are wrong",
        f"at random or by people, it gains at least half of what the oracle gains on {halves} of {len(chance)} kinds,",
        f"and {ours:.0f} of {theirs:.0f} points in sum; if wrong labels name a similar class, it does on {others} of",
        f"{len(similar)}. On all kinds: it ends at most {BELOW} below regular training on {near} of {len(some)}, on",
        f"clean labels {min(clean, default=0.0):+.1f} to {max(clean, default=0.0):+.1f} from it; its least gain is",
        f"{min(gain for *_, gain in some):+.1f}.",
    ])  # fmt: skip


def _of(runs: Sequence[Facts], arm: str, epochs: int = USUAL) -> list[Facts]:
    return [run for run in runs if (run["arm"], run["epochs"]) == (arm, epochs)]


def _accuracy(runs: Sequence[Facts]) -> float:
    return mean(float(run["accuracy"]) for run in runs)


def _best_length(runs: Sequence[Facts]) -> tuple[float, int]:
    """The highest mean accuracy of regular training, and of how many epochs."""
    regular = [run for run in runs if run["arm"] == "regular"]
    seeds = {run["seed"] for run in regular if run["epochs"] == USUAL}
    lengths = {run["epochs"] for run in regular}
    of = {length: [run for run in regular if run["epochs"] == length] for length in lengths}
    return max((_accuracy(some), length) for length, some in of.items() if {run["seed"] for run in some} == seeds)


def _shown(runs: Sequence[Facts]) -> str:
    if not runs:
        return ""
    worst = [run["worst_class"] for run in runs if "worst_class" in run]
    return f"{_accuracy(runs):.1f}" + (f" ({mean(worst):.0f})" if worst else "")


def _left_out(runs: Sequence[Facts]) -> str:
    """From which epochs, how many percent at the end, and how many percent of these are wrong."""
    if not runs:
        return ""
    shares, wrong, begins = [], [], []
    for run in runs:
        visits, found = run["curves"]["visits"], run["curves"]["found"]
        shares.append(100 * (1 - visits[-1] / run["samples"]))
        first = [epoch for epoch, each in enumerate(found) if each is not None]
        begins.append(str(first[0]) if first else "-")
        wrong += [found[-1]] if first else []
    return f"{', '.join(begins)}: {mean(shares):.1f}" + (f" ({mean(wrong):.0f})" if wrong else "")
