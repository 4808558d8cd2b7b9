"""What correcting a run's own suspects brings: the labels that it suspects most are looked at, then trained on again.

A first run is given its validation figure alone. The samples that it suspects most are looked at, wrong labels
among them are put right, and the same is trained again: with all samples, and with ``policy="auto"``.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import mean

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.common.commands import markdown
from benchmarks.common.records import Facts, Runs
from benchmarks.common.timing import made_on
from benchmarks.frontier.arms import KINDS, SEEDS, USUAL, Plan
from benchmarks.frontier.data.material import HeadTask, Material, Part
from benchmarks.frontier.training.selection import ByPruner, selection_of
from benchmarks.frontier.training.train import Settings, train
from prunedata.types import Ids

__all__ = ["BEGIN", "LOOKED_AT", "corrected", "run", "table"]

BEGIN = "<!-- python -m benchmarks.frontier corrected -->"
LOOKED_AT = (0, 5, 10, 20, 30)
"""Percent of the samples whose labels are looked at, those suspected most."""
WAYS = ("turn", "regular", "chance")
"""Trained again with ``policy="auto"``, or on all samples; or with ``policy="auto"`` after as many labels drawn at
random were looked at."""


def run(
    material: Material, kinds: Sequence[str], recorded: Runs, settings: Settings, seeds: Sequence[int] = SEEDS
) -> int:
    """Run what is not ``recorded`` yet, record it, and return how many runs that were."""
    done = recorded.names()
    ways = [(percent, way) for percent in LOOKED_AT for way in WAYS if percent or way != "chance"]
    todo = [
        (kind, seed, missing) for kind in kinds if kind != "clean" for seed in seeds
        if (missing := [(at, way) for at, way in ways if _name(kind, seed, at, way) not in done])
    ]  # fmt: skip
    with tqdm(total=sum(len(missing) for _, _, missing in todo), unit=" runs", mininterval=10) as bar:
        for kind, seed, missing in todo:
            task = material.task(kind)
            suspects = _suspects(task, settings, seed)
            for percent, way in missing:
                facts = _measure(task, settings, seed, suspects, percent, way)
                recorded.add(f"{kind}/{facts['name']}", facts)
                bar.update()
    return len(todo)


def _name(kind: str, seed: int, percent: int, way: str) -> str:
    return f"{kind}-{percent}-{way}-seed{seed}"


def _suspects(task: HeadTask, settings: Settings, seed: int) -> Ids:
    """All samples, those suspected most first, as a run that is given nothing sees it."""
    plan = Plan(task.kind, "turn", USUAL, seed)
    selection = selection_of(plan, task, settings.batch_size)
    assert isinstance(selection, ByPruner)
    for _ in train(plan, task, settings, selection):
        pass
    return np.argsort(-selection.pruner.arrays["mean_excess"], kind="stable")


def corrected(task: HeadTask, which: Ids) -> HeadTask:
    """Return the task with these labels put right; those held out stay as they are."""
    labels, wrong = task.train.labels.clone(), task.wrong.copy()
    labels[torch.from_numpy(which)] = torch.from_numpy(task.truth[which])
    wrong[which] = False
    return replace(task, train=Part(task.train.features, labels), wrong=wrong)


def _measure(task: HeadTask, settings: Settings, seed: int, suspects: Ids, percent: int, way: str) -> Facts:
    began, samples = time.process_time(), len(task.train)
    order = np.random.default_rng(seed).permutation(samples) if way == "chance" else suspects
    after = corrected(task, order[: samples * percent // 100])
    plan = Plan(task.kind, "regular" if way == "regular" else "turn", USUAL, seed)
    epochs = list(train(plan, after, settings))
    return {
        "name": _name(task.kind, seed, percent, way), "kind": task.kind, "seed": seed, "percent": percent, "way": way,
        "samples": samples, "epochs": USUAL, "wrong_percent": round(100 * float(task.wrong.mean()), 2),
        "left_wrong_percent": round(100 * float(after.wrong.mean()), 2), "accuracy": epochs[-1].accuracy,
        "seconds": round(time.process_time() - began, 1),
        **made_on("numpy", "torch", "prunedata", threads=torch.get_num_threads()),
    }  # fmt: skip


def table(results: Mapping[str, Iterable[Facts]]) -> str:
    """Return the runs of each subject as Markdown: means over seeds, and in brackets the labels that are left wrong."""
    rows = []
    for subject, runs in results.items():
        of: dict[tuple[str, str, int], list[Facts]] = defaultdict(list)
        for facts in runs:
            of[facts["kind"], facts["way"], facts["percent"]].append(facts)
        for kind in KINDS:
            for way in (way for way in WAYS if (kind, way, LOOKED_AT[-1]) in of):
                first = "turn" if way == "chance" else way
                cells = [_cell(of[kind, way if percent else first, percent]) for percent in LOOKED_AT]
                rows.append([f"`{subject}`", f"`{kind}`", str(len(of[kind, way, LOOKED_AT[-1]])), _TOLD[way], *cells])
    return markdown(("subject", "labels", "seeds", "trained again", *(f"{one} %" for one in LOOKED_AT)), rows) + "\n"


_TOLD = {"turn": 'suspects looked at, `policy="auto"`', "regular": "suspects looked at, all samples",
         "chance": 'as many at random, `policy="auto"`'}  # fmt: skip


def _cell(runs: Sequence[Facts]) -> str:
    return f"{mean(run['accuracy'] for run in runs):.1f} ({mean(run['left_wrong_percent'] for run in runs):.0f} %)"
