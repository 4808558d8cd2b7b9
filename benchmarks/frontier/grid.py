"""Which runs in which order, and running those that are not recorded yet."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from itertools import product

import torch
from tqdm import tqdm

from benchmarks.common.networks import precision_of
from benchmarks.common.records import Facts, Runs
from benchmarks.common.timing import cpu
from benchmarks.frontier.arms import ARMS, KINDS, SEEDS, Lengths, Plan
from benchmarks.frontier.data.material import HeadTask
from benchmarks.frontier.training.train import Settings, train

__all__ = ["GROUPS", "measure", "plans", "run"]

FIRST = ("regular", "bounded", "known-wrong", "running-loss", "random")
TURN = ("turn", "turn-decay", "regular-decay", "regular-delivered")
FIGURES = ("turn-accuracy", "turn-100", "turn-500", "turn-holdout")
RATES = ("regular-step", "turn-step", "regular-constant", "turn-constant", "regular-warm", "turn-warm")
ELR = ("regular-elr", "turn-elr", "regular-elr-decay", "turn-elr-decay")
DROPOUT = ("regular-dropout", "bounded-dropout")
REST = ("regular-smoothing", "known-wrong-dropout")
CONTROLS = ("bounded-elr", "small-loss", "seta")
SIGNALS = ("margin", "bounded-margin", "bounded-mean")
AMOUNTS = ("running-loss-half", "running-loss-more")
STRENGTHS = tuple(arm for arm in ARMS if arm.startswith("regular-") and arm.endswith(("-less", "-more", "-most")))
PRUNED_TUNED = tuple(
    name for name, arm in ARMS.items() if arm.policy not in ("", "auto") and (arm.decay != 1 or arm.dropout > 0.5)
)
TELLING, OTHERS = KINDS[:2], KINDS[3:]
GROUPS = (
    ((TELLING, FIRST),),
    ((("clean",), FIRST), (TELLING, DROPOUT)),
    ((OTHERS, FIRST), (KINDS, TURN)),
    ((KINDS[2:], DROPOUT), (KINDS, REST)),
    ((KINDS, ELR), (KINDS, FIGURES), (KINDS, RATES)),
    ((KINDS, CONTROLS), (KINDS, SIGNALS), (KINDS, AMOUNTS)),
    ((KINDS, STRENGTHS), (KINDS, PRUNED_TUNED)),
)
"""What decides most first: groups of parts, kinds of labels and arms. A group is run seed by seed."""


def plans(
    kinds: Iterable[str] | None = None,
    seeds: Sequence[int] = SEEDS,
    arms: Iterable[str] | None = None,
    lengths: Lengths = Lengths(),  # noqa: B008, it is frozen
    epochs: Sequence[int] | None = None,
) -> list[Plan]:
    """Return all runs of some kinds, seeds, arms and lengths, or of all, what decides most first.

    With ``epochs`` all arms have these lengths, whatever those of the subject are.
    """
    kinds, arms = set(KINDS if kinds is None else kinds), set(ARMS if arms is None else arms)
    found = []
    for group, seed in product(GROUPS, seeds):
        for kind, arm in ((kind, arm) for of, ways in group for kind, arm in product(of, ways)):
            known = kind == "clean" and ARMS[arm].policy == "known-wrong"
            if kind in kinds and arm in arms and not known:
                found += [Plan(kind, arm, length, seed) for length in epochs or lengths.of(arm)]
    return found


def measure(plan: Plan, task: HeadTask, settings: Settings, watch: Callable[[], object] = lambda: None) -> Facts:
    """Train one run and return its facts; ``watch`` is called after each epoch.

    Visits are in samples, ``saved_percent`` is of those that all samples in every epoch would be, accuracy is in
    percent of the test set, ``worst_class`` of its class that does worst, ``validation`` of the noisy labels held
    out, ``found`` the percentage of the samples left out that has a wrong label: each a number an epoch. Seconds are
    the processor's.
    """
    began, epochs = time.process_time(), []
    for epoch in train(plan, task, settings):
        epochs.append(epoch)
        watch()
    visits = [epoch.visits for epoch in epochs]
    return {
        "name": plan.name, **asdict(plan), "samples": len(task.train), "prune": plan.prune,
        "visits": sum(visits), "saved_percent": round(100 * (1 - sum(visits) / (plan.epochs * len(task.train))), 2),
        "accuracy": epochs[-1].accuracy, "worst_class": epochs[-1].worst,
        "seconds": round(time.process_time() - began, 1),
        "hardware": _processor(), "versions": {name: version(name) for name in ("numpy", "torch")},
        "settings": {**asdict(settings), "hidden": list(settings.hidden)},
        "wrong_percent": round(100 * float(task.wrong.mean()), 2),
        "curves": {
            "visits": visits, "accuracy": [epoch.accuracy for epoch in epochs],
            "validation": [epoch.validation for epoch in epochs], "found": [epoch.found for epoch in epochs],
        },
    }  # fmt: skip


def run(plans: Sequence[Plan], task_of: Callable[[str], HeadTask], recorded: Runs, settings: Settings) -> int:
    """Run all plans that are not ``recorded``, record each, and return how many were run.

    ``task_of`` gives the task of a kind of labels. Torch computes with as many threads as it is set to.
    """
    done = recorded.names()
    todo = [plan for plan in plans if plan.name not in done]
    print(f"{len(plans)} runs, {len(plans) - len(todo)} of them done.")
    task: HeadTask | None = None
    with tqdm(total=sum(plan.epochs for plan in todo), unit=" epochs", mininterval=10) as bar:
        for plan in todo:
            bar.set_postfix_str(plan.name)
            if task is None or task.kind != plan.kind:
                task = task_of(plan.kind)
            recorded.add(f"{plan.kind}/{plan.name}", measure(plan, task, settings, bar.update))
    return len(todo)


def _processor() -> str:
    precision = "" if precision_of("cpu") == torch.bfloat16 else " without bfloat16"
    return f"{cpu()}{precision}, {torch.get_num_threads()} thread"
