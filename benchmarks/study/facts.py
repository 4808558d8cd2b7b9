"""What is recorded of a run: its facts, and what each sample went through."""

import statistics
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common.timing import made_on
from benchmarks.study.arm import Chooser
from benchmarks.study.data import StudyData
from benchmarks.study.judging import auc
from benchmarks.study.recipe import Recipe
from benchmarks.study.trace import Trace
from benchmarks.study.training_step import Images, Trainer
from prunedata.findings.suspects import suspicion
from prunedata.policies.rules import MEAN_EXCESS

__all__ = ["LAST", "facts_of", "hardware", "save_arrays"]

LAST, BEST = 3, 3
"""Final accuracy is the mean of the last three tests, the paper's that of the best three."""


def save_arrays(
    path: Path, chooser: Chooser, trainer: Trainer, images: Images, data: StudyData, trace: Trace | None
) -> None:
    """What each sample went through, for the study of bad data."""
    arrays: dict[str, Any] = {
        "wrong": data.wrong,
        "labels": data.train.labels.numpy(),
        "scores": trainer.scores(images).half().numpy(),
    }
    if trace is not None:
        arrays |= trace.arrays()
    if chooser.pruner is not None:
        arrays |= {"hits": chooser.pruner.hits, "visits": chooser.pruner.visits, **chooser.pruner.arrays}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)


def facts_of(
    recipe: Recipe, data: StudyData, chooser: Chooser, curves: list[dict[str, Any]], hardware: str
) -> dict[str, Any]:
    accuracies = [point["accuracy"] for point in curves if "accuracy" in point]
    visits = sum(point["visits"] for point in curves)
    return {
        "network": recipe.network,
        "data": data.name,
        "samples": len(data.train),
        "policy": recipe.arm,
        "saving": recipe.saving,
        "seed": recipe.seed,
        "epochs": recipe.epochs,
        "trained_epochs": recipe.trained_epochs,
        "noise": str(recipe.noise),
        "visits_saved_percent": round(100 * (1 - visits / (recipe.epochs * len(data.train))), 3),
        "seconds": round(sum(point["seconds"] for point in curves), 3),
        "overhead_seconds": round(chooser.overhead, 4),
        "accuracy_best3": round(100 * statistics.mean(sorted(accuracies)[-BEST:]), 3),
        "accuracy_final": round(100 * statistics.mean(accuracies[-LAST:]), 3),
        "recipe": recipe.as_dict(),
        "hardware": hardware,
        "versions": {name: version(name) for name in ("torch", "numpy")},
        "curves": curves,
        **_said(chooser, data),
    }


def _said(chooser: Chooser, data: StudyData) -> dict[str, Any]:
    """How many labels are wrong, and what the library says of them."""
    wrong: dict[str, Any] = {"wrong": int(data.wrong.sum())}
    if chooser.pruner is None:
        return wrong
    scores, visits = chooser.pruner.arrays[MEAN_EXCESS], chooser.pruner.visits
    found = auc(suspicion(scores, visits), data.wrong)
    doubted = chooser.pruner.advice.doubted
    return wrong | {"suspects_auc": None if found is None else round(found, 4), "doubted": doubted}


def hardware(device: str, threads: int) -> str:
    """Name what a run was made on."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return str(made_on(threads=threads)["hardware"])
