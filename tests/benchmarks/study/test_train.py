"""The reference trainer, alone and on ranks: recipes, resuming, arms, and what it writes."""

import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.common.data import digits
from benchmarks.common.records import Runs
from benchmarks.study import matrix
from benchmarks.study import train as command
from benchmarks.study.arms import ARMS
from benchmarks.study.data import SEED, study_data
from benchmarks.study.recipe import LabelNoise, Recipe
from benchmarks.study.results import recipe_of
from benchmarks.study.train import Options, train
from benchmarks.study.training_step import Images, Trainer
from tests.adapters.helpers.ranks import WORLD, group, start

# A network that has learned nothing has no loss above twice the mean.
pytestmark = pytest.mark.filterwarnings("ignore::prunedata.errors.RandomPruningWarning")


SMALL = Recipe(samples=300, epochs=6, batch_size=32)
PRUNING = [name for name, arm in ARMS.items() if arm.saves and name not in ("fewer-epochs", "infobatch")]
DECIDING = [name for name, arm in ARMS.items() if not arm.saves]


class Stopped(Exception):
    """What stands for a kill between two epochs."""


def stop_after(epoch):
    def tick(point):
        if point["epoch"] == epoch:
            raise Stopped

    return tick


def without_times(facts):
    facts = json.loads(json.dumps(facts))
    for point in facts["curves"]:
        del point["seconds"]
    return {name: value for name, value in facts.items() if name not in ("seconds", "overhead_seconds")}


@given(
    epochs=st.integers(20, 200),
    saving=st.floats(0.02, 0.45),
    arm=st.sampled_from([*PRUNING, "fewer-epochs"]),
)
def test_every_arm_saves_the_visits_that_it_should(epochs, saving, arm):
    if arm != "fewer-epochs":
        assume(saving * epochs < len(Recipe(arm=arm, epochs=epochs, saving=0.01).schedule.pruned_epochs))
    recipe = Recipe(arm=arm, epochs=epochs, saving=saving)
    if arm == "fewer-epochs":
        assert abs(recipe.trained_epochs - epochs * (1 - saving)) <= 0.5
        return
    saved = recipe.prune * len(recipe.schedule.pruned_epochs) / epochs
    assert saved == pytest.approx(saving, abs=1e-4)
    assert recipe.trained_epochs == epochs


def test_each_recipe_of_the_matrix_has_a_name_of_its_own():
    found = matrix.recipes(Recipe(samples=10_000, epochs=120))
    assert len({recipe.name for recipe in found}) == len(found) > 100
    for recipe in found:
        if recipe.arm not in ("regular", "fewer-epochs", "infobatch"):
            assert 0 < recipe.prune < 1


@pytest.mark.parametrize("kind", ["random", "confusable"])
def test_as_many_labels_are_wrong_as_asked(kind):
    share = 0.4 if kind == "random" else 0.05
    recipe = replace(SMALL, noise=LabelNoise(kind, share))
    data, clean = study_data(recipe, None), study_data(SMALL, None)
    assert data.wrong.sum() == round(share * 300)
    assert np.array_equal(data.train.labels.numpy() != clean.train.labels.numpy(), data.wrong)
    assert np.array_equal(study_data(recipe, None).train.labels, data.train.labels)


def test_people_s_labels_are_those_of_the_same_images(tmp_path):
    recipe, clean = replace(SMALL, noise=LabelNoise("worse")), study_data(SMALL, None)
    said = (digits().train.labels.numpy() + np.arange(1437) % 3) % 10
    np.savez(tmp_path / "labels.npz", worse=said.astype(np.uint8), aggre=said[:9])
    data = study_data(recipe, None, tmp_path / "labels.npz")
    assert data.train.images.equal(clean.train.images)
    order = np.random.default_rng(SEED).permutation(1437)[: SMALL.samples]
    assert np.array_equal(data.train.labels.numpy(), said[order])
    assert np.array_equal(data.wrong, data.train.labels.numpy() != clean.train.labels.numpy())
    with pytest.raises(ValueError, match="Expected --labels"):
        study_data(recipe, None)
    with pytest.raises(ValueError, match=r"Expected people's labels of 1437 images\. Got 9"):
        study_data(replace(recipe, noise=LabelNoise("aggre")), None, tmp_path / "labels.npz")


@pytest.mark.filterwarnings("ignore::prunedata.errors.NeverPrunesWarning")  # six epochs are too few for advice
@pytest.mark.parametrize("arm", [*DECIDING, "fewer-epochs", *PRUNING])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(arm, tmp_path):
    recipe = replace(SMALL, arm=arm, saving=0.0 if arm in DECIDING else 0.25)
    whole = train(recipe, Options(arrays=tmp_path / "whole.npz"))
    options = Options(checkpoint=tmp_path / "run.pt", arrays=tmp_path / "parts.npz")
    with pytest.raises(Stopped):
        train(recipe, options, stop_after(2))
    parts = train(recipe, options)
    assert without_times(parts) == without_times(whole)
    with np.load(tmp_path / "whole.npz") as one, np.load(tmp_path / "parts.npz") as other:
        assert set(one) == set(other)
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_what_cannot_be_saved_is_refused_before_it_trains():
    ticks = []
    with pytest.raises(ValueError, match="Expected a saving below"):
        train(replace(SMALL, arm="random", epochs=5, saving=0.9), Options(), ticks.append)
    assert not ticks


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("batch_size", [32, 50])
def test_a_captured_step_trains_as_one_that_is_not(resumed, batch_size):
    """On a CPU the same code runs uncaptured, its trials before and the state that they must leave alone included."""
    recipe = replace(SMALL, batch_size=batch_size)
    images = Images(study_data(recipe, None).train, torch.device("cpu"))
    weights = []
    for graphs in (False, True):
        trainer = Trainer(recipe, images, 10, graphs=graphs)
        for number in range(3):
            if resumed and number == 1:
                state = trainer.state_dict()
                trainer = Trainer(recipe, images, 10, graphs=graphs)
                trainer.load_state_dict(state)
            trainer.begin_epoch(number, -(-300 // batch_size))
            for ids in torch.arange(300).split(batch_size):  # the last batch is shorter, and not captured
                trainer.step(ids)
        weights.append([weight.clone() for weight in trainer.model.state_dict().values()])
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))


def test_what_watches_leaves_nothing_out_and_says_what_it_saw():
    noise = LabelNoise("random", 0.4)
    watched = train(replace(SMALL, arm="watched", noise=noise), Options())
    assert watched["visits_saved_percent"] == 0
    assert watched["wrong"] == 120
    assert 0.4 < watched["suspects_auc"] <= 1
    assert len(watched["classes"]) == 10
    auto = train(replace(SMALL, arm="auto", noise=noise), Options())
    assert all("left_out" in point for point in auto["curves"] if point["pruned"])


def test_the_facts_add_up():
    facts = train(replace(SMALL, arm="dropping-count", saving=0.25), Options())
    visits = [point["visits"] for point in facts["curves"]]
    assert facts["visits_saved_percent"] == pytest.approx(100 * (1 - sum(visits) / (6 * 300)), abs=0.01)
    assert [point["visits"] < 300 for point in facts["curves"]] == [point["pruned"] for point in facts["curves"]]
    accuracies = [100 * point["accuracy"] for point in facts["curves"]]
    assert facts["accuracy_final"] == pytest.approx(np.mean(accuracies[-3:]), abs=0.01)
    assert facts["accuracy_best3"] == pytest.approx(np.mean(sorted(accuracies)[-3:]), abs=0.01)
    assert facts["seconds"] > 0  # by the processor's clock, which stands still where other programs run
    assert facts["overhead_seconds"] > 0


def test_the_command_writes_its_result_and_no_checkpoint_stays(tmp_path, capsys):
    results = Runs(tmp_path / "runs.jsonl.bz2")
    amounts = ["--samples", "200", "--epochs", "5", "--prune", "0.5", "--noise", "0.2"]
    assert command.main([*amounts, "--policy", "random", "--results", str(results.file)]) == 0
    (facts,) = results.read()
    assert results.names() == {recipe_of(facts).name}
    assert json.loads(capsys.readouterr().out)["policy"] == facts["policy"] == "random"
    wanted = {
        "network", "data", "policy", "seed", "epochs", "visits_saved_percent", "seconds", "overhead_seconds",
        "accuracy_best3", "accuracy_final", "noise", "hardware", "versions", "curves",
    }  # fmt: skip
    assert wanted <= set(facts)
    assert facts["noise"] == "random20"
    assert not list((tmp_path / "checkpoints").iterdir())


@pytest.mark.skipif("INFOBATCH" not in os.environ, reason="INFOBATCH names no checkout of that peer")
def test_infobatch_trains_and_saves_visits():
    recipe = replace(SMALL, arm="infobatch", saving=0.3, epochs=8)
    facts = train(recipe, Options(infobatch=Path(os.environ["INFOBATCH"])))
    assert 5 < facts["visits_saved_percent"] < 45
    assert not any(point["pruned"] for point in facts["curves"][:1])


# The reference trainer on two ranks, by DDP and by FSDP2: real processes, over gloo.


RECIPE = Recipe(samples=301, epochs=6, batch_size=32, augment=False)
WAYS = ("ddp", "fsdp")
RANKED = {"regular": 0.0, "watched": 0.0, "auto": 0.0, "dropping-count": 0.25, "loss-ranked": 0.25}


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
        return weights_after(4, parallel, rank, WORLD)


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
        for arm, saving in RANKED.items():
            recipe = replace(RECIPE, arm=arm, saving=saving, noise=LabelNoise("random", 0.4))
            facts = train(recipe, Options(parallel=parallel))
            found[arm] = [[point["visits"], point.get("left_out"), point["accuracy"]] for point in facts["curves"]]
        return found


@pytest.mark.slow
@pytest.mark.parametrize("parallel", WAYS)
def test_every_arm_trains_on_two_ranks_which_agree(parallel, tmp_path):
    one, other = start(partial(run, parallel), tmp_path)
    assert one == other
    assert [visits for visits, *_ in one["regular"]] == [302] * 6  # one sample twice, so that ranks have as many
    saved = 1 - sum(visits for visits, *_ in one["dropping-count"]) / (6 * 302)
    assert 0.2 < saved < 0.27
