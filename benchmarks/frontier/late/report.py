"""The study's tables, of its recorded runs."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from statistics import mean

from benchmarks.common.markdown import markdown
from benchmarks.common.records import Facts
from benchmarks.frontier.data.tables import RARE
from benchmarks.frontier.late.rules import RULES
from benchmarks.frontier.late.subjects import KINDS, SUBJECTS

__all__ = ["BEGIN", "report"]

BEGIN = "<!-- python -m benchmarks.frontier.late table -->"
ARMS = ("auto", *RULES, "oracle")


def report(facts: Iterable[Facts]) -> str:
    """Return the tables as Markdown: how accurate each arm ends, and how many labels ``late`` doubts."""
    of: dict[tuple[str, str], dict[str, list[Facts]]] = defaultdict(lambda: defaultdict(list))
    machines = set()
    for one in sorted(facts, key=lambda one: int(one["seed"])):
        of[one["subject"], one["kind"]][one["arm"]].append(one)
        machines.add(f"{one['hardware']}, torch {one['versions']['torch']}")
    ends, counts = [], []
    for subject, kind in product(SUBJECTS, KINDS):
        arms = of[subject, kind]
        if not (arms["regular"] and arms["late"]):
            continue
        head = [f"`{subject}`{'*' if SUBJECTS[subject].chosen else ''}", f"`{kind}`", str(len(arms["late"]))]
        ends.append([*head, *_accuracies(arms, thinned=kind.endswith("-thinned"))])
        counts.append([*head, *_counts(arms)])
    told = "\n".join(f"- `{name}`: {rule.title}." for name, rule in RULES.items())
    heads = ("subject", "labels", "seeds", "regular", "its best", *(f"`{arm}`" for arm in ARMS))
    doubted = (
        "subject",
        "labels",
        "seeds",
        "wrong",
        "at first",
        "at the end",
        "`late-sum`",
        "begins, `late-onset`",
    )
    between = "Left out, in percent of the samples, and in brackets how many percent of these are wrong:"
    tables = f"{told}\n\n{markdown(heads, ends)}\n\n{between}\n\n{markdown(doubted, counts)}"
    return f"{tables}\n\nOn {', '.join(sorted(machines))}.\n"


def _accuracies(arms: dict[str, list[Facts]], *, thinned: bool) -> list[str]:
    """Of regular training, in its best epoch or at a third of the length, and what others end above its end."""
    regular = {run["seed"]: (run["curve"][-1], _classes(run, thinned=thinned)) for run in arms["regular"]}
    best = max(mean(max(run["curve"]) for run in runs) for runs in (arms["regular"], arms["short"]) if runs)
    cells = [f"{mean(all_of for all_of, _ in regular.values()):.1f} ({mean(few for _, few in regular.values()):.0f})"]
    for arm in ARMS:
        runs = [run for run in arms[arm] if run["seed"] in regular]
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
    begins = [str(run["begins"]) for run in arms["late-onset"]]
    return [
        f"{100 * mean(run['wrong'] for run in arms['late']) / samples:.1f}",
        _found([run["first"] for run in arms["late"]], samples),
        _found([run["left_out"] for run in arms["late"]], samples),
        _found([run["left_out"] for run in arms["late-sum"]], samples),
        ", ".join(begins),
    ]


def _found(pairs: list[list[int]], samples: int) -> str:
    out, wrong = (sum(pair[at] for pair in pairs) for at in (0, 1))
    return f"{100 * out / len(pairs) / samples:.1f}" + (f" ({100 * wrong / out:.0f})" if wrong else "") if pairs else ""
