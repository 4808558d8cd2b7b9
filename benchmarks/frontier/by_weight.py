"""Left out by weight beside left out: accuracy at equal epochs and at about equal time, on the same labels.

By weight every epoch has all samples, so it takes more steps, each with a mean over fewer samples, and longer. Both are
trained in turn, one right after the other, so that their seconds may be compared.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean

import torch
from tqdm import tqdm

from benchmarks.common.commands import gain, markdown
from benchmarks.common.records import Facts, Runs
from benchmarks.common.timing import made_on
from benchmarks.frontier.arms import ARMS, KINDS, SEEDS, USUAL, Plan
from benchmarks.frontier.data.material import HeadTask, Material
from benchmarks.frontier.training.policies import Counting
from benchmarks.frontier.training.selection import ByPruner, selection_of
from benchmarks.frontier.training.train import Settings, train

__all__ = ["BEGIN", "COMPARED", "SHORTER", "measure", "run", "table"]

BEGIN = "<!-- python -m benchmarks.frontier by-weight -->"
COMPARED = ("random", "bounded", "turn", "known-wrong")
"""Arms that leave out, of which each is run both ways."""
SHORTER = 20
"""By weight so many epochs take about as long as the usual number that leave out 40 %."""
WAYS = ("out", "weight")


def run(
    material: Material,
    kinds: Sequence[str],
    recorded: Runs,
    settings: Settings,
    seeds: Sequence[int] = SEEDS,
    arms: Sequence[str] = COMPARED,
) -> int:
    """Run what is not ``recorded`` yet, both ways in turn, record it, and return how many runs that were."""
    done = recorded.names()
    lengths = {"regular": (USUAL,), **dict.fromkeys(arms, (USUAL, SHORTER))}
    plans = [
        Plan(kind, arm, epochs, seed) for kind in kinds for seed in seeds for arm in lengths for epochs in lengths[arm]
        if kind != "clean" or arm != "known-wrong"
    ]  # fmt: skip
    todo = [(plan, way) for plan in plans for way in WAYS[: 2 if ARMS[plan.arm].policy else 1]]
    todo = [(plan, way) for plan, way in todo if f"{plan.name}-{way}" not in done]
    for plan, way in tqdm(todo, unit=" runs", mininterval=10):
        recorded.add(f"{plan.kind}/{plan.name}-{way}", measure(plan, way, material.task(plan.kind), settings))
    return len(todo)


def measure(plan: Plan, way: str, task: HeadTask, settings: Settings) -> Facts:
    """Train one run, leaving ``"out"`` or by ``"weight"``, and return its facts. Seconds are the processor's."""
    began = time.process_time()
    selection = selection_of(plan, task, settings.batch_size, leave_out="weight" if way == "weight" else "delivery")
    aim = Counting(selection.pruner) if isinstance(selection, ByPruner) else None
    epochs = list(train(plan, task, settings, selection, aim))
    return {
        "name": f"{plan.name}-{way}", "kind": plan.kind, "arm": plan.arm, "epochs": plan.epochs, "seed": plan.seed,
        "way": way, "samples": len(task.train), "prune": plan.prune, "delivered": sum(one.visits for one in epochs),
        "accuracy": epochs[-1].accuracy, "seconds": round(time.process_time() - began, 2),
        **made_on("numpy", "torch", threads=torch.get_num_threads()),
    }  # fmt: skip


def table(results: Mapping[str, Iterable[Facts]]) -> str:
    """Return the runs of each subject as Markdown: means over seeds, and in brackets the lowest and highest seed."""
    rows, machines = [], set()
    for subject, runs in results.items():
        of: dict[tuple[str, str, int, str], list[Facts]] = defaultdict(list)
        for facts in sorted(runs, key=lambda facts: int(facts["seed"])):
            of[facts["kind"], facts["arm"], facts["epochs"], facts["way"]].append(facts)
            machines.add(f"{facts['hardware']}, with torch {facts['versions']['torch']}")
        for kind in KINDS:
            for arm in (arm for arm in COMPARED if (kind, arm, SHORTER, "weight") in of):
                regular = of[kind, "regular", USUAL, "out"]
                out, weight = (of[kind, arm, USUAL, way] for way in WAYS)
                apart, sooner = (_apart(runs, out) for runs in (weight, of[kind, arm, SHORTER, "weight"]))
                rows.append([
                    f"`{subject}`", f"`{kind}`", f"`{arm}`", str(len(out)), _mean(regular), _mean(out), _mean(weight),
                    apart, sooner, _times(weight, out), _times(of[kind, arm, SHORTER, "weight"], out),
                ])  # fmt: skip
    columns = [
        "subject", "labels", "arm", "seeds", f"all samples, {USUAL} epochs", "left out", "by weight",
        "by weight over left out", f"by weight, {SHORTER} epochs, over it", "time", f"time of {SHORTER} epochs",
    ]  # fmt: skip
    return f"{markdown(columns, rows)}\n\nOn {', '.join(sorted(machines))}.\n"


def _mean(runs: Sequence[Facts]) -> str:
    return f"{mean(run['accuracy'] for run in runs):.1f}"


def _apart(ours: Sequence[Facts], theirs: Sequence[Facts]) -> str:
    """How far runs lie above others of the same seeds."""
    return gain([mine["accuracy"] - other["accuracy"] for mine, other in zip(ours, theirs, strict=True)])


def _times(ours: Sequence[Facts], theirs: Sequence[Facts]) -> str:
    """How many times as long they took, in the mean."""
    return f"{mean(mine['seconds'] / other['seconds'] for mine, other in zip(ours, theirs, strict=True)):.2f}"
