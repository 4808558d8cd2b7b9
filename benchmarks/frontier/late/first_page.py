"""What the library does with nothing given, beside regular training and the oracle: the table of two first pages."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean

from benchmarks.common.commands import markdown
from benchmarks.common.records import Facts
from benchmarks.frontier.data.tables import RARE
from benchmarks.frontier.late.report import LABELS, LIBRARY
from benchmarks.study.recipe import WARM_UP

__all__ = ["BEGIN_ALL", "BEGIN_FIRST_PAGE", "OF_FRONTIER", "first_page"]

BEGIN_FIRST_PAGE = "<!-- python -m benchmarks.frontier.late first-page -->"
BEGIN_ALL = "<!-- python -m benchmarks.frontier.late first-page --all -->"
HEADS = (
    "data", "wrong labels", "all samples, to the end", "all samples, best epoch picked afterwards",
    '`"auto"`, labels unknown', '`"auto"`, labels known', "correct labels only (oracle)",
)  # fmt: skip
DEEP = {
    "clean": "none",
    "aggre": "9 %, by people",
    "worse": "40 %, by people",
    "random40": "40 %, at random",
}
THINNED = {1: tuple(DEEP), 10: ("clean", "worse", "random40")}
"""Of so many images of some classes one is left: which kinds of labels such runs have."""
TITLES = {
    1: "photos of CIFAR-10, ResNet-18",
    10: "photos of CIFAR-10, ResNet-18, four of ten classes rare",
}
OF_RARE = "the rare classes of these"
SMALL = {"clean": "none", "random20": "20 %, at random", "random40": "40 %, at random"}
COMPARED = ("regular", LIBRARY, LABELS)
RATE = 0.1
"""The learning rate at which the arms of the deep network are compared."""
OF_FRONTIER = {
    "conv-cifar10": ("photos of CIFAR-10, five convolutions", ("clean", "random40", "worse")),
    "head-pretrained": (
        "photos of CIFAR-10, two layers on a trained network's features",
        ("clean", "random20", "worse"),
    ),
    "head-texts": ("short texts, two layers on a language model's embeddings", ("clean", "random20", "worse")),
}
"""Subjects of the frontier, and which of their kinds of labels the first page has."""
HOW = {"clean": "none", "random20": "{} %, at random", "random40": "{} %, at random", "worse": "{} %, by people"}
LENGTH = 30
OF_README = {
    (TITLES[1], "none"), (TITLES[1], "9 %, by people"), (TITLES[1], "40 %, at random"),
    (TITLES[10], "40 %, at random"),
    (OF_FRONTIER["head-pretrained"][0], "41 %, by people"),
    ("7 small data sets", "none"), ("7 small data sets", "40 %, at random"),
}  # fmt: skip
"""Lines of README: each kind of data and of labels, with the best and the worst that comes of them."""


def first_page(
    deep: Iterable[Facts], heads: Mapping[str, list[Facts]], late: Iterable[Facts], *, short: bool = False
) -> str:
    """Return the table as Markdown: from the runs on a GPU, those of the frontier by subject, and of this study.

    ``short``: only the lines of README, and those of the rare classes of these.
    """
    lines, shown = [*_deep(list(deep)), *_heads(heads), *_small(late)], False
    if short:
        found, lines = lines, []
        for head, row in found:
            shown = shown if head[0] == OF_RARE else tuple(head) in OF_README
            lines += [(head, row)] if shown else []
    return markdown(HEADS, [[*head, *(f"{one:.1f}" if one is not None else "" for one in row)] for head, row in lines])


def _deep(runs: list[Facts]) -> Iterable[tuple[Sequence[str], Sequence[float | None]]]:
    """ResNet-18: of each arm the mean of the last epochs, over seeds; the best epoch is that of runs of any length."""
    for thinned, kinds in THINNED.items():
        for kind in kinds:
            arms: dict[str, list[Facts]] = defaultdict(list)
            for run in runs:
                recipe = run.get("recipe", {})
                alike = (recipe.get("warm_up", WARM_UP), recipe.get("thinned", 1)) == (WARM_UP, thinned)
                usual = (run.get("noise"), recipe.get("rates"), recipe.get("learning_rate")) == (kind, "cosine", RATE)
                if alike and usual and not recipe.get("balanced"):
                    arms["regular" if run["policy"] == "watched" else run["policy"]].append(run)
            if not (arms["regular"] and arms["auto"]):
                continue
            longest = max(run["epochs"] for run in arms["regular"])
            regular = [run for run in arms["regular"] if run["epochs"] == longest]
            best = max(mean(map(_best, alike)) for alike in _alike(arms["regular"]))
            known = arms["known-wrong"] or regular  # of clean labels nothing is wrong
            ways = (regular, arms["auto"], arms["auto-labels"], known)
            first, *others = (mean(run["accuracy_final"] for run in way) if way else None for way in ways)
            yield (TITLES[thinned], DEEP[kind]), (first, best, *others)
            if thinned > 1:
                first, *others = (mean(map(_rare, way)) if way else None for way in ways)
                yield (OF_RARE, DEEP[kind]), (first, None, *others)


def _alike(runs: list[Facts]) -> Iterable[list[Facts]]:
    """Runs that differ by their seeds alone, together."""
    lengths = {run["epochs"] for run in runs}
    return ([run for run in runs if run["epochs"] == epochs] for epochs in lengths)


def _best(run: Facts) -> float:
    return 100 * max(float(point.get("accuracy", 0)) for point in run["curves"])


def _rare(run: Facts) -> float:
    return float(mean(run["classes"][::RARE]))


def _heads(of: Mapping[str, list[Facts]]) -> Iterable[tuple[Sequence[str], Sequence[float | None]]]:
    """Subjects of the frontier: the means of the seeds that today's rule ran with."""
    for subject, (title, kinds) in OF_FRONTIER.items():
        for kind in kinds:
            arms: dict[str, dict[int, Facts]] = defaultdict(dict)
            for run in of.get(subject, ()):
                if (run["kind"], run["epochs"]) == (kind, LENGTH):
                    arms[run["arm"]][run["seed"]] = run
            seeds = arms["auto-alone"].keys() & arms["auto-labels"].keys()
            if not seeds:
                continue
            regular = [arms["regular-delivered"][seed] for seed in seeds]
            known = arms["known-wrong"] if kind != "clean" else arms["regular-delivered"]
            ends = [
                mean(runs[seed]["accuracy"] for seed in seeds)
                for runs in (arms["regular-delivered"], arms["auto-alone"], arms["auto-labels"], known)
            ]
            best = mean(max(run["curves"]["accuracy"]) for run in regular)
            yield (title, HOW[kind].format(round(regular[0]["wrong_percent"]))), (ends[0], best, *ends[1:])


def _small(runs: Iterable[Facts]) -> Iterable[tuple[Sequence[str], Sequence[float | None]]]:
    """The mean over the data sets on which every kind of labels was run in every way."""
    of: dict[str, dict[str, dict[str, list[Facts]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for run in runs:
        of[run["subject"]][run["kind"]][run["arm"]].append(run)
    kinds = [*SMALL, *(f"{kind}-thinned" for kind in SMALL)]
    shared = [kinds_of for kinds_of in of.values() if all(_seeds(kinds_of[kind]) for kind in kinds)]
    for kind in kinds if shared else ():
        labels, thinned = SMALL[kind.removesuffix("-thinned")], kind.endswith("-thinned")
        arms = [{arm: _runs(kinds_of[kind], arm) for arm in (*COMPARED, "oracle")} for kinds_of in shared]
        ends = [mean(mean(run["curve"][-1] for run in one[arm]) for one in arms) for arm in arms[0]]
        best = mean(mean(max(run["curve"]) for run in one["regular"]) for one in arms)
        name = f"{len(shared)} small data sets" + thinned * ", a third of the classes rare"
        yield (name, labels), (ends[0], best, *ends[1:])
        if thinned:
            rare = [mean(mean(mean(run["classes"][::RARE]) for run in one[arm]) for one in arms) for arm in arms[0]]
            yield (OF_RARE, labels), (rare[0], None, *rare[1:])


def _seeds(arms: Mapping[str, list[Facts]]) -> set[int]:
    """The seeds with which all arms ran."""
    return set.intersection(*({run["seed"] for run in arms[arm]} for arm in COMPARED))


def _runs(arms: Mapping[str, list[Facts]], arm: str) -> list[Facts]:
    """The runs of an arm with these seeds; where no label is wrong, the oracle is regular training."""
    return [run for run in arms[arm] or arms["regular"] if run["seed"] in _seeds(arms)]
