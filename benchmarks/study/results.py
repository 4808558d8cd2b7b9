"""The results of runs that were recorded: where they are, and what their names say."""

import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common.records import Runs
from benchmarks.common.timing import made_on
from benchmarks.study.arm import Chooser
from benchmarks.study.choosers import auc
from benchmarks.study.data import StudyData
from benchmarks.study.recipe import PEOPLE, LabelNoise, Recipe
from benchmarks.study.trace import Trace
from benchmarks.study.training_step import Images, Trainer
from prunedata.findings.suspects import suspicion
from prunedata.policies.rules import MEAN_EXCESS

__all__ = ["LAST", "RESULTS", "RunName", "facts_of", "hardware", "kind_of_labels", "parse", "recipe_of", "save_arrays"]

RESULTS = Runs(Path(__file__).with_name("results.jsonl.bz2"))
"""By the names of the recipes."""
NAME = re.compile(
    r"(?P<network>[^-]+)-(?P<size>\w+x\d+)(?P<plain>-plain)?(?P<rates>-cosine[\d.]+(?:-warm\d+)?(?:-thinned\d+)?)?"
    r"-(?P<noise>clean|worse|aggre|(?:random|confusable)[\d.]+)"
    r"-(?P<arm>[a-z][a-z-]*?)(?:-(?P<saving>[\d.]+))?-seed(?P<seed>\d+)"
)


def recipe_of(facts: Mapping[str, Any]) -> Recipe:
    """Return the recipe that a run's facts hold."""
    held = facts["recipe"]
    return Recipe(**{**held, "noise": LabelNoise(**held["noise"])})


@dataclass(frozen=True)
class RunName:
    """What the name of a run says; ``saving`` in percent, as text, empty for regular training."""

    network: str
    size: str
    noise: str
    arm: str
    saving: str
    seed: int

    @property
    def kind(self) -> str:
        """Network, arm and saving: what two runs share that differ by their seed alone."""
        return f"{self.network} {self.arm}{f' {self.saving}%' if self.saving else ''}"


def parse(name: str) -> RunName:
    """Read a name that :attr:`benchmarks.study.recipe.Recipe.name` made."""
    found = NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"Expected the name of a run, as lenet-10000x120-clean-regular-seed0. Got {name!r}.")
    size = found["size"] + (found["plain"] or "") + (found["rates"] or "")
    return RunName(found["network"], size, found["noise"], found["arm"], found["saving"] or "", int(found["seed"]))


def kind_of_labels(noise: str) -> str:
    """Say what ``random20`` and the like mean."""
    if noise in PEOPLE:
        return f"people's labels, the {'worst' if noise == 'worse' else 'majority'} of three answers"
    found = re.fullmatch(r"(random|confusable)([\d.]+)", noise)
    if found is None:
        return f"{noise} labels"
    return f"{found[2]}% of the labels wrong{' at random' if found[1] == 'random' else ', confusable'}"


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
