"""The reference trainer on two ranks, by DDP and by FSDP2: real processes, over gloo."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks.study.data import study_data
from benchmarks.study.recipe import LabelNoise, Recipe
from benchmarks.study.train import Options, train
from benchmarks.study.training_step import Images, Trainer
from tests.adapters.helpers.ranks import WORLD, group, start

RECIPE = Recipe(samples=301, epochs=6, batch_size=32, augment=False)
WAYS = ("ddp", "fsdp")
ARMS = {"regular": 0.0, "watched": 0.0, "auto": 0.0, "dropping-count": 0.25, "loss-ranked": 0.25}


def weights_after(epochs, parallel="", rank=0, world=1):
    """Weights after three batches an epoch, of which each rank takes its share."""
    images = Images(study_data(RECIPE, None).train, torch.device("cpu"))
    trainer = Trainer(RECIPE, images, 10, parallel=parallel)
    for number in range(epochs):
        trainer.begin_epoch(number, 3)
        for ids in torch.arange(96).split(32):
            trainer.step(ids[rank::world])
    found = (weight.full_tensor() if parallel == "fsdp" else weight for weight in trainer.model.parameters())
    return torch.cat([weight.detach().flatten() for weight in found]).tolist()


def step(parallel, rank, folder):
    with group(rank, folder):
        found = weights_after(4, parallel, rank, WORLD)
        (folder / f"{rank}.json").write_text(json.dumps(found))


@pytest.mark.parametrize("parallel", WAYS)
def test_two_ranks_take_the_steps_of_one(parallel, tmp_path):
    before, alone = (np.array(weights_after(epochs)) for epochs in (0, 4))
    one, other = (np.array(each) for each in start(partial(step, parallel), tmp_path))
    assert np.array_equal(one, other)
    # To rounding, which is coarse where the processor computes in bfloat16.
    assert np.linalg.norm(one - alone) < 0.02 * np.linalg.norm(alone - before)


def run(parallel, rank, folder):
    with group(rank, folder):
        found = {}
        for arm, saving in ARMS.items():
            recipe = replace(RECIPE, arm=arm, saving=saving, noise=LabelNoise("random", 0.4))
            facts = train(recipe, Options(parallel=parallel))
            found[arm] = [[point["visits"], point.get("left_out"), point["accuracy"]] for point in facts["curves"]]
        (folder / f"{rank}.json").write_text(json.dumps(found))


@pytest.mark.slow
@pytest.mark.parametrize("parallel", WAYS)
def test_every_arm_trains_on_two_ranks_which_agree(parallel, tmp_path):
    one, other = start(partial(run, parallel), tmp_path)
    assert one == other
    assert [visits for visits, *_ in one["regular"]] == [302] * 6  # one sample twice, so that ranks have as many
    saved = 1 - sum(visits for visits, *_ in one["dropping-count"]) / (6 * 302)
    assert 0.2 < saved < 0.27
