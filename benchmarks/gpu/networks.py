"""The paper's ten networks on the device: an epoch on all samples and a pruned one, their time and memory."""

from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.common.networks import NETWORKS
from benchmarks.common.records import Facts
from benchmarks.gpu.costs import Piece, Place, named
from benchmarks.study.data import study_data
from benchmarks.study.recipe import Recipe
from benchmarks.study.training_step import Images, Trainer
from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap

__all__ = ["pieces"]

PRUNE = 0.2
"""Share of the samples that the pruned epoch leaves out."""


def _measured(place: Place, network: str) -> Facts:
    samples, batch = place.of(25_600, 4), place.of(256, 2)
    recipe = Recipe(network, samples=samples, batch_size=batch, widen=place.of(10, 1), learning_rate=0.05)
    data = study_data(recipe, place.data)
    images = Images(data.train, place.device)
    if place.full:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(place.device)
    trainer = Trainer(recipe, images, data.classes)
    trainer.begin_epoch(0)  # captures the step
    pruner = Pruner(samples, Schedule(2, 2, 1, 1, 1), prune=PRUNE, batch_size=batch)
    ids: Any = torch.utils.data.DataLoader(range(samples), batch_size=batch, shuffle=True)  # type: ignore[arg-type]
    loader: Any = wrap(ids, pruner)
    seconds, losses, steps = [], [], []
    for epoch in pruner.epochs():
        began = trainer.clock()
        trainer.begin_epoch(epoch.number)
        total, count = torch.zeros((), device=place.device), 0
        for numbers in loader:
            where = numbers.pin_memory() if place.full else numbers  # the host would else wait for the copy
            step = trainer.step(where.to(place.device, non_blocking=True))
            pruner.observe(step)
            total += step.mean()
            count += 1
        seconds.append(trainer.clock() - began)
        losses.append(float(total) / count)
        steps.append(count)
    memory = torch.cuda.max_memory_allocated(place.device) / 2**30 if place.full else 0.0
    return {
        "network": network, "samples": samples, "batch_size": batch, "seconds": seconds, "losses": losses,
        "saved_percent": 100 * (1 - seconds[1] / seconds[0]), "predicted_percent": 100 * (1 - steps[1] / steps[0]),
        "samples_per_second": samples / seconds[0], "memory_gib": memory, "hardware": named(place),
        "right": bool(np.isfinite(losses).all()),
    }  # fmt: skip


def pieces(place: Place) -> list[Piece]:
    """A piece for each network."""
    return [Piece(f"networks/{network}", 10, partial(_measured, place, network)) for network in NETWORKS]
