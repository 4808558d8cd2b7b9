"""How well a run finds wrong labels of each kind, people's own among them, beside cleanlab on the same run.

A network is trained on all samples for the usual length, and a Pruner watches. Cleanlab gets the probabilities of that
network, which has learned the labels that it judges; and, as it asks for, those of networks that have not seen them:
one is trained for each of three folds, on the other two.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.common.commands import markdown
from benchmarks.common.records import Facts
from benchmarks.common.timing import made_on
from benchmarks.frontier.arms import KINDS, USUAL
from benchmarks.frontier.data.material import HeadTask, Part
from benchmarks.frontier.training.networks import NETWORKS
from benchmarks.frontier.training.selection import Unpruned
from benchmarks.frontier.training.train import Settings, fit, right, scores_of, watched
from benchmarks.pages.wrong_labels import by_cleanlab, found, rankings
from prunedata.types import Array

__all__ = ["BEGIN", "judge", "new_network", "table", "unseen"]

BEGIN = "<!-- python -m benchmarks.frontier suspects -->"
FOLDS = 3
BY_LOSSES = "losses up to the turn"
"""What ``prunedata suspects`` ranks by, as the recorded runs call it: the turn is memorization onset."""
BY_COUNTS = "hits and high over visits"
"""What runs from before are ranked by."""
UNSEEN = f"cleanlab, by {FOLDS} more networks that had not seen the samples"

SHOWN = {BY_LOSSES: "losses up to the onset"} | {name: name for name in (BY_COUNTS, "cleanlab", UNSEEN)}
"""Of the ways to rank, those in the table, and their names there; the others lie between or below."""


def judge(task: HeadTask, settings: Settings, seed: int, epochs: int = USUAL) -> Facts:
    """Train and watch a network, and say how well each way to rank finds the wrong labels.

    Raises
    ------
    ValueError
        If no label is wrong.
    """
    if not task.wrong.any():
        raise ValueError(f"Expected a kind of labels of which some are wrong. Got {task.kind}.")
    pruner, network, training = watched(task, settings, seed, epochs)
    for _ in training:
        pruner.validated(right(network, task.held_out), lower_is_better=False)
    labels = task.train.labels.numpy()
    ranked = rankings({
        "scores": scores_of(network, task.train.features).numpy(), "labels": labels,
        "hits": pruner.hits, "visits": pruner.visits, "high": pruner.arrays["high"],
    })  # fmt: skip
    ranked[BY_LOSSES] = pruner.arrays["mean_excess"].astype(np.float64)
    ranked[UNSEEN] = by_cleanlab(labels, unseen(task, settings, seed, epochs))
    return {
        "name": f"{task.kind}-seed{seed}", "kind": task.kind, "seed": seed,
        "samples": len(task.train), "epochs": epochs,
        "wrong_percent": round(100 * float(task.wrong.mean()), 2),
        "found": {name: found(scores, task.wrong).to_dict() for name, scores in ranked.items()},
        **made_on("numpy", "torch", "prunedata", threads=1),
    }  # fmt: skip


def new_network(task: HeadTask, settings: Settings) -> nn.Module:
    """Return the network of a task, untrained."""
    return NETWORKS[settings.network](task.train.features.shape[1], settings.hidden, task.classes, 0.0)


def unseen(task: HeadTask, settings: Settings, seed: int, epochs: int) -> Array:
    """Return probabilities, shape (samples, classes), by networks that were trained on the other folds."""
    samples = len(task.train)
    folds = torch.from_numpy(np.random.default_rng(seed).permutation(samples) % FOLDS)
    probabilities = torch.empty(samples, task.classes, dtype=torch.float64)
    for fold in range(FOLDS):
        others = Part(task.train.features[folds != fold], task.train.labels[folds != fold])
        network = new_network(task, settings)
        for _ in fit(network, others, Unpruned(seed, epochs, len(others), settings.batch_size), epochs, settings):
            pass
        probabilities[folds == fold] = scores_of(network, task.train.features[folds == fold]).double().softmax(1)
    return np.asarray(probabilities)


def table(results: Mapping[str, Iterable[Facts]]) -> str:
    """Return the runs of each subject as Markdown: means over seeds, and in brackets the least."""
    rows: list[list[str]] = []
    for subject, runs in results.items():
        of: dict[str, list[Facts]] = defaultdict(list)
        for run in runs:
            of[run["kind"]].append(run)
        for kind in [kind for kind in KINDS if kind in of]:
            rows += _rows(subject, kind, of[kind])
    columns = ("subject", "labels", "wrong", "seeds", "ranked by", "top tenth", "AUC")
    return markdown(columns, rows) + "\n"


def _rows(subject: str, kind: str, runs: Sequence[Facts]) -> list[list[str]]:
    wrong = f"{runs[0]['wrong_percent']:.0f} %"
    return [
        [
            f"`{subject}`", f"`{kind}`", wrong, str(len(runs)), shown,
            _figure([100 * run["found"][name]["precision_at_tenth"] for run in runs], ".1f", " %"),
            _figure([run["found"][name]["auc"] for run in runs], ".3f"),
        ]
        for name, shown in SHOWN.items()
    ]  # fmt: skip


def _figure(values: Sequence[Any], form: str, unit: str = "") -> str:
    mean = f"{statistics.mean(values):{form}}{unit}"
    return mean if len(values) == 1 else f"{mean} ({min(values):{form}}{unit})"
