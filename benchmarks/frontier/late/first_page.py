"""The table of README: what a stranger can expect of a deep network, and of small ones with rare classes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean

from benchmarks.common.commands import markdown
from benchmarks.common.records import Facts
from benchmarks.frontier.data.tables import RARE
from benchmarks.frontier.late.report import LABELS, LIBRARY

__all__ = ["BEGIN", "first_page"]

BEGIN = "<!-- python -m benchmarks.frontier.late first-page -->"
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
SMALL = {"clean": "none", "random20": "20 %, at random", "random40": "40 %, at random"}
COMPARED = ("regular", LIBRARY, LABELS)
RATE = 0.1
"""The learning rate at which the arms of the deep network are compared."""


def first_page(deep: Iterable[Facts], late: Iterable[Facts]) -> str:
    """Return the table as Markdown, from the runs on a GPU and from those of this study."""
    lines = [*_deep(list(deep)), *_small(late)]
    return markdown(HEADS, [[*head, *(f"{one:.1f}" if one is not None else "" for one in row)] for head, row in lines])


def _deep(runs: list[Facts]) -> Iterable[tuple[Sequence[str], Sequence[float | None]]]:
    """ResNet-18: of each arm the mean of the last epochs; the best epoch is that of runs of any length."""
    for kind, labels in DEEP.items():
        arms: dict[str, list[Facts]] = defaultdict(list)
        for run in runs:
            recipe = run.get("recipe", {})
            if (run.get("noise"), recipe.get("rates"), recipe.get("learning_rate")) == (kind, "cosine", RATE):
                arms["regular" if run["policy"] == "watched" else run["policy"]].append(run)
        if not (arms["regular"] and arms["auto"]):
            continue
        longest = max(arms["regular"], key=lambda run: run["epochs"])
        best = max(100 * point.get("accuracy", 0) for run in arms["regular"] for point in run["curves"])
        known = next(iter(arms["known-wrong"]), longest)  # of clean labels nothing is wrong
        ends = [run["accuracy_final"] for run in (longest, arms["auto"][0], known)]
        yield ("photos of CIFAR-10, ResNet-18", labels), (ends[0], best, ends[1], None, ends[2])


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
            yield ("the rare classes of these", labels), (rare[0], None, *rare[1:])


def _seeds(arms: Mapping[str, list[Facts]]) -> set[int]:
    """The seeds with which all arms ran."""
    return set.intersection(*({run["seed"] for run in arms[arm]} for arm in COMPARED))


def _runs(arms: Mapping[str, list[Facts]], arm: str) -> list[Facts]:
    """The runs of an arm with these seeds; where no label is wrong, the oracle is regular training."""
    return [run for run in arms[arm] or arms["regular"] if run["seed"] in _seeds(arms)]
