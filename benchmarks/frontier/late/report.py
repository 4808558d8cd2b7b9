"""The tables of the late study: of its runs, and of single samples."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from statistics import mean

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.common.commands import markdown
from benchmarks.common.records import Facts
from benchmarks.frontier.data.tables import RARE
from benchmarks.frontier.late.rules import RULES, MovingAverages
from benchmarks.frontier.late.subjects import KINDS, SUBJECTS
from prunedata.plan.doubts import are_many_worse, count_doubted, lie_clearer, loss_at_first, two_groups

__all__ = ["BEGIN", "BEGIN_TRACES", "LABELS", "LIBRARY", "report", "traces"]

BEGIN = "<!-- python -m benchmarks.frontier.late table -->"
LIBRARY = "onset-blind"
"""What the library does without a figure."""
LABELS = "onset-labels"
"""What it does with labels, which it takes from a data set that has classes."""
NAMES = {LIBRARY: "labels unknown", LABELS: "labels known"}
ARMS = ("auto", "library", *(name for name in RULES if name not in (LABELS, "onset-median")), "oracle")
OTHERS = "class-aware"
"""A rule of others."""
WEIGHTED = ("regular-weighted", "onset-labels-weighted")
"""With class weights in the loss."""
BESIDE = (LIBRARY, LABELS, "onset-median", OTHERS, *WEIGHTED, "oracle")
EVEN = ("clean", "random20", "random40")
"""Labels of even classes on which the rule of others ran, too."""
RANKED = ("mean of all", "recent", "lowest tenth", "median")
FALLS = 1.0
"""Points that regular training ends below its best, where it memorizes."""


def report(facts: Iterable[Facts]) -> str:
    """Return the tables as Markdown: how accurate each arm ends, and how many labels ``late`` doubts."""
    of: dict[tuple[str, str], dict[str, list[Facts]]] = defaultdict(lambda: defaultdict(list))
    machines = set()
    for one in sorted(facts, key=lambda one: int(one["seed"])):
        of[one["subject"], one["kind"]][one["arm"]].append(one)
        machines.add(f"{one['hardware']}, torch {one['versions']['torch']}")
    ends, more, counts, summed = [], [], [], []
    for subject, kind in product(SUBJECTS, KINDS):
        arms = of[subject, kind]
        if not arms["regular"] or (kind == "near20" and len(arms["regular"][0]["classes"]) == 2):
            continue  # of two classes the nearest is the other: the same runs as random20
        summed.append((kind, arms))
        head = [f"`{subject}`{'*' if SUBJECTS[subject].chosen else ''}", f"`{kind}`"]
        if not arms["late"] and not kind.endswith("-thinned") and arms[LABELS]:
            beside = (LIBRARY, LABELS, "oracle")
            more.append([*head, str(len(arms[LABELS])), *_accuracies(arms, thinned=False, beside=beside)])
        if not arms["late"]:
            continue
        head.append(str(len(arms["late"])))
        ends.append([*head, *_accuracies(arms, thinned=kind.endswith("-thinned"))])
        counts.append([*head, *_counts(arms)])
    told = "\n".join(f"- `{name}`: {rule.title}." for name, rule in RULES.items())
    heads = ("subject", "labels", "seeds", "regular", "its best", *(f"`{arm}`" for arm in ARMS))
    doubted = ("wrong", f"`{LIBRARY}`", "from epoch", "`late` at first", "at the end", "`late-sum` at the end")
    between = "Left out, in percent of the samples, and in brackets how many percent of these are wrong:"
    parts = (
        _summary(summed, LIBRARY), _summary(summed, LABELS), told, markdown(heads, ends),
        between, markdown((*heads[:3], *doubted), counts),
        "The rules of the library on other data:",
        markdown((*heads[:5], f"`{LIBRARY}`", f"`{LABELS}`", "`oracle`"), more),
        _with_labels(of), f"On {', '.join(sorted(machines))}.\n",
    )  # fmt: skip
    return "\n\n".join(parts)


def _with_labels(of: dict[tuple[str, str], dict[str, list[Facts]]]) -> str:
    """What labels bring, on the seeds that ran with them and without; and how well wrong labels are ranked."""
    ends, even, ranked, kept = [], [], [], []
    for subject, kind in product(SUBJECTS, KINDS):
        arms = of[subject, kind]
        if kind == "near20" and arms["regular"] and len(arms["regular"][0]["classes"]) == 2:
            continue  # as above
        head = [f"`{subject}`{'*' if SUBJECTS[subject].chosen else ''}", f"`{kind}`"]
        seeds = {run["seed"] for run in arms[LABELS]} & {run["seed"] for run in arms[LIBRARY]}
        some = {arm: [run for run in runs if run["seed"] in seeds] for arm, runs in arms.items()}
        thinned = kind.endswith("-thinned")
        if seeds and thinned:
            some["short"] = some.get("short", [])
            ends.append([*head, str(len(seeds)), *_accuracies(some, thinned=True, beside=BESIDE)])
            if kind.startswith("random"):  # at the labels' own frequencies
                kept.append({arm: _keeps(some, arm) for arm in (LABELS, LIBRARY, OTHERS, *WEIGHTED) if some.get(arm)})
        elif seeds:
            even.append((_gain(some, LABELS) - _gain(some, LIBRARY), subject, kind, len(seeds)))
        if arms["ranks"]:
            auc = [mean(run["auc"][by] for run in arms["ranks"]) for by in RANKED]
            guess = f"{100 * mean(run['guess'] for run in arms['ranks']):.0f} %"
            ranked.append([*head, str(len(arms["ranks"])), *(f"{one:.3f}" for one in auc), guess])
    least, most = min(even), max(even)
    first, last = (
        f"{gain:+.1f} (`{subject}`, `{kind}`, {seeds} seeds)" for gain, subject, kind, seeds in (least, most)
    )
    told = (
        "Of the kinds whose labels are wrong at their own frequencies: on how many an arm ends at most 0.5 below the "
        "best length, and on how many its thinned classes end at least where those of regular training do: "
        f"{_kept(kept)}.\n\nOn {len(even)} kinds with even classes `{LABELS}` ends {first} to {last} points from "
        f"`{LIBRARY}`, in the mean {mean(gain for gain, *_ in even):+.2f}. {_others(of)}"
        "\n\nPoints above regular training, in the mean over the kinds on which all of these ran, and in brackets of "
        f"the thinned classes: {_means(of)}."
    )
    heads = ("subject", "labels", "seeds", "regular", "its best", *(f"`{arm}`" for arm in BESIDE))
    return "\n\n".join([
        "With labels known, on thinned kinds: every third class keeps a tenth of its samples. In the test set all "
        f"classes are equally frequent. `{OTHERS}` is RCAP (2025), a published rule that draws 70 % of the samples "
        "anew in each epoch, more of the classes that do badly. `-weighted` divides each loss by the frequency of its "
        f"label. `{OTHERS}` and the two with weights ran on seeds 0 and 1.",
        markdown(heads, ends), told,
        "AUC of wrong labels after two thirds of regular training: by the mean loss of all epochs, by recent losses, "
        "and by how far these lie above the lowest tenth, or the median, of their own label. *Guess right* is the "
        "share of the wrong labels whose right class the network guesses:",
        markdown((*heads[:3], *RANKED, "guess right"), ranked),
    ])  # fmt: skip


def _kept(kinds: Sequence[dict[str, tuple[bool, bool]]]) -> str:
    """How often the arms keep what regular training reaches, in words."""
    words = []
    for arm in dict.fromkeys(arm for kind in kinds for arm in kind):
        each = [kind[arm] for kind in kinds if arm in kind]
        accurate, survive = (sum(one) for one in zip(*each, strict=True))
        words.append(f"`{arm}` on {accurate} and {survive} of {len(each)}")
    return ", ".join(words)


def _means(of: dict[tuple[str, str], dict[str, list[Facts]]]) -> str:
    """What arms gain in the mean over thinned kinds, in words."""
    compared = (LABELS, OTHERS, *WEIGHTED)
    words = []
    for wrong in (False, True):
        some = [
            arms
            for (_, kind), arms in of.items()
            if kind.endswith("-thinned") and kind.startswith("clean") != wrong and all(arms[arm] for arm in compared)
        ]
        gains = [
            f"`{arm}` {mean(_gain(arms, arm) for arms in some):+.1f} ({mean(_few(arms, arm) for arms in some):+.0f})"
            for arm in compared
            if some
        ]
        words.append(f"on {len(some)} with {'wrong' if wrong else 'clean'} labels {', '.join(gains)}")
    return "; ".join(words)


def _few(arms: dict[str, list[Facts]], arm: str) -> float:
    """How far an arm's thinned classes end above those of regular training, in the mean of the seeds of both."""
    regular = {run["seed"]: _classes(run, thinned=True) for run in arms["regular"]}
    return float(
        mean(_classes(run, thinned=True) - regular[run["seed"]] for run in arms[arm] if run["seed"] in regular)
    )


def _others(of: dict[tuple[str, str], dict[str, list[Facts]]]) -> str:
    """What the rule of others, which prunes to save time, costs on even classes."""
    gains = {
        kind: [_gain(arms, OTHERS) for (_, of_), arms in of.items() if of_ == kind and arms[OTHERS]] for kind in EVEN
    }
    words = [f"{_range(each)} on `{kind}`" for kind, each in gains.items() if each]
    return f"There `{OTHERS}` ends {', '.join(words)} points from regular training." if words else ""


def _keeps(arms: dict[str, list[Facts]], arm: str) -> tuple[bool, bool]:
    """Whether an arm ends within half a point of the best length, and its thinned classes where regular ones do."""
    best = max(mean(max(run["curve"]) for run in runs) for runs in (arms["regular"], arms["short"]) if runs)
    ends, few = (mean(run["curve"][-1] for run in arms[arm]), mean(_classes(run, thinned=True) for run in arms[arm]))
    return ends >= best - 0.5, few >= mean(_classes(run, thinned=True) for run in arms["regular"])


def _summary(rows: Sequence[tuple[str, dict[str, list[Facts]]]], arm: str) -> str:
    """What an arm brings without a figure, and how many labels it doubts."""
    rows = [(kind, arms) for kind, arms in rows if arms[arm]]
    clean = [_gain(arms, arm) for kind, arms in rows if kind == "clean"]
    thinned = [_gain(arms, arm) for kind, arms in rows if kind.endswith("-thinned")]
    noisy = [arms for kind, arms in rows if kind not in ("clean",) and not kind.endswith("-thinned")]
    falls = [(_gain(arms, arm), _gain(arms, "oracle")) for arms in noisy if _fall(arms) >= FALLS]
    others = [_gain(arms, arm) for arms in noisy if _fall(arms) < FALLS]
    near = sum(abs(_doubted(arms, arm) - _wrong(arms, arm)) <= _wrong(arms, arm) / 3 for arms in noisy)
    untouched = [run for kind, arms in rows if kind == "clean" for run in arms[arm]]
    most = max(100 * run["first"][0] / run["samples"] for run in untouched)
    halves = sum(one >= best / 2 for one, best in falls)
    ours, theirs = (sum(each) for each in zip(*falls, strict=True))
    return " ".join([
        f"**With {NAMES[arm]}** (`{arm}`), in points beside regular training: on clean labels of {len(clean)} subjects",
        f"it ends {_range(clean)}. There are {len(noisy)} kinds with wrong labels and even classes. On {len(falls)} of",
        "them regular training ends a point or more below its best epoch: there it gains at least half of what the",
        f"oracle gains on {halves}, and {ours:.0f} of {theirs:.0f} points in sum. On the {len(others)} others it ends",
        f"{_range(others)}, and on {len(thinned)} thinned kinds {_range(thinned)}. The number of labels that it doubts",
        f"is within a third of the true number on {near} of the {len(noisy)} kinds; on clean labels it doubts at most",
        f"{most:.1f} %.",
    ])  # fmt: skip


def _range(gains: Sequence[float]) -> str:
    return f"{min(gains):+.1f} to {max(gains):+.1f}"


def _doubted(arms: dict[str, list[Facts]], arm: str) -> float:
    return float(mean(run["first"][0] for run in arms[arm]))


def _wrong(arms: dict[str, list[Facts]], arm: str) -> float:
    return float(mean(run["wrong"] for run in arms[arm]))


def _gain(arms: dict[str, list[Facts]], arm: str) -> float:
    """How far an arm ends above regular training, in the mean of the seeds of both."""
    regular = {run["seed"]: run["curve"][-1] for run in arms["regular"]}
    return float(mean(run["curve"][-1] - regular[run["seed"]] for run in arms[arm] if run["seed"] in regular))


def _fall(arms: dict[str, list[Facts]]) -> float:
    return float(mean(max(run["curve"]) - run["curve"][-1] for run in arms["regular"]))


def _accuracies(arms: dict[str, list[Facts]], *, thinned: bool, beside: Sequence[str] = ARMS) -> list[str]:
    """Of regular training, in its best epoch or at a third of the length, and what others end above its end."""
    regular = {run["seed"]: (run["curve"][-1], _classes(run, thinned=thinned)) for run in arms["regular"]}
    best = max(mean(max(run["curve"]) for run in runs) for runs in (arms["regular"], arms["short"]) if runs)
    cells = [f"{mean(all_of for all_of, _ in regular.values()):.1f} ({mean(few for _, few in regular.values()):.0f})"]
    for arm in beside:
        runs = [run for run in arms.get(arm, ()) if run["seed"] in regular]
        gains = [run["curve"][-1] - regular[run["seed"]][0] for run in runs]
        few = [_classes(run, thinned=thinned) - regular[run["seed"]][1] for run in runs]
        cells.append(f"{mean(gains):+.1f} ({mean(few):+.0f})" if runs else "")
    return [cells[0], f"{best:.1f}", *cells[1:]]


def _classes(run: Facts, *, thinned: bool) -> float:
    """Of the class that does worst, or the mean of those that were thinned."""
    classes: Sequence[float] = run["classes"]
    return mean(classes[::RARE]) if thinned else min(classes)


def _counts(arms: dict[str, list[Facts]]) -> list[str]:
    samples = arms["late"][0]["samples"]
    return [
        f"{100 * mean(run['wrong'] for run in arms['late']) / samples:.1f}",
        _found([run["first"] for run in arms[LIBRARY]], samples),
        ", ".join(str(run["begins"]) for run in arms[LIBRARY]),
        _found([run["first"] for run in arms["late"]], samples),
        _found([run["left_out"] for run in arms["late"]], samples),
        _found([run["left_out"] for run in arms["late-sum"]], samples),
    ]


def _found(pairs: list[list[int]], samples: int) -> str:
    out, wrong = (sum(pair[at] for pair in pairs) for at in (0, 1))
    return f"{100 * out / len(pairs) / samples:.1f}" + (f" ({100 * wrong / out:.0f})" if wrong else "") if pairs else ""


BEGIN_TRACES = "<!-- python -m benchmarks.frontier.late traces -->"
AFTER = (12, 20, 26, 30)
"""Epochs after which they are looked at."""
TRACES = ("worse", "clean")


def traces(folder: Path) -> str:
    """Return a table of the files ``trace-resnet18-KIND.npz`` of a folder as Markdown.

    Arrays ``losses``, float16 of shape (epochs, samples), and ``wrong``, bool of shape (samples,).
    """
    rows = []
    for kind in TRACES:
        with np.load(folder / f"trace-resnet18-{kind}.npz") as file:
            losses, wrong = file["losses"].astype(np.float32), file["wrong"]
        averages, ids = MovingAverages(wrong.size), np.arange(wrong.size)
        for epoch, of_epoch in enumerate(losses, 1):
            averages.add(ids, of_epoch, epoch - 1)
            if epoch in AFTER:
                now, untaught = averages.now, loss_at_first(averages.means)
                number = count_doubted(two_groups(now), untaught=untaught, many=are_many_worse(now, untaught))
                rows.append([f"`{kind}`", str(epoch), *_row(now, losses[:epoch].mean(0), wrong, number)])
    heads = (
        "labels",
        "after epoch",
        "wrong",
        "AUC, recent",
        "mean of all epochs",
        "suspects",
        "doubted",
        "of these wrong",
    )
    return markdown(heads, rows) + "\n"


def _row(averages: NDArray[np.float64], means: NDArray[np.float32], wrong: NDArray[np.bool_], number: int) -> list[str]:
    cells = [f"{100 * wrong.mean():.1f} %", "", "", "", f"{100 * number / wrong.size:.1f} %", ""]
    if wrong.any():
        recent, of_all = (f"{roc_auc_score(wrong, by):.3f}" for by in (averages, means))
        cells[1:4] = recent, of_all, recent if lie_clearer(averages, means) else of_all
        cells[5] = f"{100 * wrong[np.argsort(-averages)[:number]].mean():.0f} %" if number else ""
    return cells
