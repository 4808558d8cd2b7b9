"""Deep networks on the device: the paper's ten, and the arms of ResNet-18 on 48,000 images, what decides most first."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.common.networks import NETWORKS
from benchmarks.common.records import Facts
from benchmarks.gpu.costs import Piece, Place, named
from benchmarks.study.data import study_data
from benchmarks.study.recipe import LabelNoise, Recipe
from benchmarks.study.train import Options, train
from benchmarks.study.training_step import Images, Trainer
from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap

__all__ = ["OTHERS", "TUNED", "arms", "recipes", "ten_networks"]


TUNED, OTHERS = 0.1, (0.2, 0.05)
"""The rate that all arms are compared at, and others that are tried on clean labels."""
THINNED = 10
"""Of so many images of a rare class one is left."""
WORSE, AGGRE, RANDOM40, CLEAN = LabelNoise("worse"), LabelNoise("aggre"), LabelNoise("random", 0.4), LabelNoise()
SHARES = {WORSE: 0.4, AGGRE: 0.09, RANDOM40: 0.4}
"""About the share of the labels that is wrong, which the oracle and the random control leave out."""


def recipes(base: Recipe) -> list[Recipe]:
    """Every arm, what decides most first."""
    watched = {noise: replace(base, arm="watched", noise=noise) for noise in (CLEAN, WORSE, AGGRE, RANDOM40)}
    auto = {noise: replace(base, arm="auto", noise=noise) for noise in watched}

    def knowing(arm: str, noise: LabelNoise) -> Recipe:
        probe = replace(base, arm=arm, noise=noise, saving=0.01).schedule
        return replace(
            base, arm=arm, noise=noise, saving=round(SHARES[noise] * len(probe.pruned_epochs) / probe.epochs, 3)
        )

    def lengths(noise: LabelNoise, *epochs: int) -> list[Recipe]:
        return [replace(base, arm="regular", noise=noise, epochs=number) for number in epochs]

    steps = replace(base, rates="steps")
    paper = [replace(steps, arm=arm, saving=saving) for saving in (0.25, 0.14)
             for arm in ("dropping-count", "random", "fewer-epochs")]  # fmt: skip
    short = [base.epochs // 2, base.epochs // 4]
    seeds = [[replace(arm, seed=seed)
              for arm in (watched[WORSE], auto[WORSE], watched[RANDOM40], auto[RANDOM40], auto[CLEAN], watched[CLEAN],
                          watched[AGGRE], auto[AGGRE], knowing("known-wrong", WORSE))] for seed in (1, 2)]  # fmt: skip
    cold = [replace(arm, learning_rate=rate, warm_up=0) for rate in (base.learning_rate, OTHERS[0])
            for arm in (watched[WORSE], auto[WORSE], auto[CLEAN], watched[CLEAN])]  # fmt: skip
    rare = [replace(base, arm=arm, noise=noise, thinned=THINNED) for noise in (RANDOM40, WORSE, CLEAN)
            for arm in ("watched", "auto-labels", "auto")]  # fmt: skip
    rare += [replace(knowing("known-wrong", noise), thinned=THINNED) for noise in (RANDOM40, WORSE)]
    rare += [replace(base, arm=arm, noise=noise, thinned=THINNED, balanced=True) for noise in (RANDOM40, WORSE, CLEAN)
             for arm in ("watched", "auto-labels")]  # fmt: skip
    return [
        watched[CLEAN],
        replace(watched[CLEAN], learning_rate=OTHERS[0]),
        watched[WORSE], auto[WORSE], auto[CLEAN], knowing("known-wrong", WORSE),
        *lengths(WORSE, *short), watched[AGGRE], auto[AGGRE],
        watched[RANDOM40], auto[RANDOM40], knowing("known-wrong", RANDOM40), *lengths(RANDOM40, *short),
        replace(watched[CLEAN], learning_rate=OTHERS[1]), steps, *paper[:3],
        knowing("known-wrong", AGGRE), knowing("random-run", WORSE),
        *(replace(arm, learning_rate=0.2) for arm in (watched[WORSE], auto[WORSE], auto[CLEAN])),
        *cold, *rare, *seeds[0],
        *paper[3:], *lengths(WORSE, 2 * base.epochs), *lengths(AGGRE, *short),
        *(replace(arm, network="resnet34") for arm in (watched[WORSE], auto[WORSE]) if base.network == "resnet18"),
        *seeds[1],
    ]  # fmt: skip


def _trained(place: Place, recipe: Recipe) -> Facts:
    options = Options(data=place.data, people=place.labels, device=str(place.device), compiled=place.compiled, every=3)
    return train(recipe, options) | {"hardware": named(place), "compiled": place.compiled}


def arms(place: Place) -> list[Piece]:
    """A piece for each arm. Without people's labels those that need them are left out, and on a CPU other seeds."""
    if place.full:
        base = Recipe("resnet18", samples=48_000, epochs=30, batch_size=256, learning_rate=TUNED, rates="cosine")
    else:
        base = Recipe("lenet", samples=160, epochs=20, batch_size=32, learning_rate=0.02, rates="cosine")
    read = partial(_read, place, base)
    found = [Piece("deep/data", 25, read)]
    for recipe in recipes(base):
        if (place.labels is not None or recipe.noise not in (WORSE, AGGRE)) and (place.full or not recipe.seed):
            work = recipe.trained_epochs * (2.0 if recipe.network == "resnet34" else 1.0)
            work *= 0.65 if recipe.thinned > 1 else 1.0
            found.append(Piece(f"deep/{recipe.name}", work + 4, partial(_trained, place, recipe)))
    return found


def _read(place: Place, base: Recipe) -> Facts:
    """Decode the images, once for all arms."""
    data = study_data(base, place.data)
    return {"data": data.name, "samples": len(data.train), "hardware": named(place), "right": True}


PRUNE = 0.2
"""Share of the samples that the pruned epoch leaves out."""


def _two_epochs(place: Place, network: str) -> Facts:
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


def ten_networks(place: Place) -> list[Piece]:
    """A piece for each network: an epoch on all samples and a pruned one, their time and memory."""
    return [Piece(f"networks/{network}", 10, partial(_two_epochs, place, network)) for network in NETWORKS]
