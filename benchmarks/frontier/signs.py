"""What a run shows of wrong labels while it is watched: what `advise` goes by, of networks whose labels are known."""

from collections.abc import Iterator
from dataclasses import asdict, replace

import torch

from benchmarks.common.data import with_wrong_labels
from benchmarks.common.records import Facts
from benchmarks.common.timing import machine
from benchmarks.frontier.data.material import HeadTask, Material
from benchmarks.frontier.plan import USUAL
from benchmarks.frontier.training.train import Settings, watched
from prunedata.findings.advice import FEWEST_VISITS
from prunedata.findings.by_heart import above_guess
from prunedata.findings.wrong_labels import WRONG, signs_of

__all__ = ["WATCHED", "tasks", "watch"]

WATCHED = 10
"""Epochs that are watched for the curves of `advise`, which takes half as many at the fewest."""


def tasks(material: Material, kinds: tuple[str, ...]) -> Iterator[HeadTask]:
    """Yield the task of each kind of labels, and of each share of random errors that the curves of `advise` have."""
    classes = int(material.truth.max()) + 1
    for kind in (*kinds, *(f"random{round(100 * share)}" for share in WRONG if share)):
        if kind not in material.labels:
            share = int(kind.removeprefix("random")) / 100
            noisy = torch.from_numpy(with_wrong_labels(material.truth.numpy(), classes, share))
            material = replace(material, labels={**material.labels, kind: noisy})
        if kind in kinds or kind not in ("random20", "random40"):
            yield material.task(kind)


def watch(task: HeadTask, settings: Settings, seed: int, last: int = USUAL, epochs: int = USUAL) -> Facts:
    """Train a network on all samples up to an epoch, and say what a Pruner showed after the watched epochs.

    ``signs`` are shares of the samples, as ``signs_of`` has them, and ``early`` the same after the fewest epochs that
    `advise` takes. ``above_guess`` is of each epoch's visits the share that had a loss above a blind guess.
    """
    signs: dict[int, dict[str, float]] = {}
    pruner, _, training = watched(task, settings, seed, epochs)
    for number in range(last):
        next(training)
        pruner.end_epoch()
        if number + 1 in (FEWEST_VISITS, WATCHED):
            seen = signs_of(pruner.hits, pruner.arrays["high"], pruner.visits)
            signs[number + 1] = {name: round(value, 5) for name, value in asdict(seen).items()}
    return {
        "name": f"{task.kind}-seed{seed}", "kind": task.kind, "seed": seed,
        "samples": len(task.train), "epochs": epochs,
        "wrong_percent": round(100 * float(task.wrong.mean()), 2), "classes": task.classes,
        "signs": signs[WATCHED], "early": signs[FEWEST_VISITS],
        "above_guess": [round(share, 4) for share in above_guess(pruner.history)],
        "machine": machine(),
    }  # fmt: skip
