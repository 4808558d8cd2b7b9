"""The frontier's runs: the rule that is tried, one run, and a grid of them that goes on where it stood."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from benchmarks.common.networks import precision_of
from benchmarks.common.records import Runs
from benchmarks.frontier.arms import Plan
from benchmarks.frontier.grid import measure, run
from benchmarks.frontier.report.auto import AUTO
from benchmarks.frontier.training.networks import Convolutions, Layers, NormalisedConvolutions
from benchmarks.frontier.training.policies import EarlyLearning, SlidingWindow, SmallLosses, policy_of
from benchmarks.frontier.training.selection import selection_of
from benchmarks.frontier.training.train import Settings, train
from prunedata.plan.onset import find_onset
from prunedata.policies import Known

SETTINGS = Settings(hidden=(64,), batch_size=50, rate=0.1)


# -- the policies that the library doesn't have


@given(
    st.lists(st.dictionaries(st.integers(0, 5), st.floats(-5, 30), min_size=1), max_size=6),
    st.sampled_from(["averaged", "bounded-mean"]),
)
def test_an_average_is_that_of_a_plain_loop(blocks, name):
    policy = policy_of(name, np.zeros(6, bool))
    arrays, expected, seen = policy.arrays(6), np.zeros(6), np.zeros(6)
    for block in blocks:
        ids, signals = np.array([*block]), np.array([*block.values()])
        policy.update(arrays, ids, signals, np.full(len(ids), signals.mean()))
        for at, signal in block.items():
            seen[at] += 1
            old = 0.8 if name == "averaged" else 1 - 1 / seen[at]
            said = signal if name == "averaged" else 1 - np.exp(-max(signal, 0))
            expected[at] = old * expected[at] + (1 - old) * said
    scores = policy.scores(Known(*(np.zeros(6, np.uint8),) * 3, arrays=arrays, num_pruned=1))
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


# -- what it goes by, and what a step makes small


def test_small_losses_alone_count_once_it_has_begun():
    losses, aim = torch.tensor([4.0, 1, 3, 2, 0]), SmallLosses(0.4, start=2)
    assert [float(aim(losses, losses, losses, losses, epoch)) for epoch in (0, 1, 2, 3)] == [2, 2, 1, 1]


def test_early_learning_is_that_of_its_paper_and_keeps_what_it_has():
    aim, ids, labels = EarlyLearning(4, 3), torch.tensor([2, 0]), torch.tensor([1, 2])
    kept = torch.zeros(4, 3)
    for _ in range(3):
        scores = torch.randn(2, 3, requires_grad=True)
        losses = torch.nn.functional.cross_entropy(scores, labels, reduction="none")
        likely = scores.softmax(1)
        kept[ids] = 0.7 * kept[ids] + 0.3 * likely.detach()
        wanted = losses.mean() + 3 * torch.log(1 - (kept[ids] * likely).sum(1)).mean()
        found = aim(losses, scores, labels, ids, 0)
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
        assert torch.autograd.grad(found, scores)[0].abs().sum() > 0
    torch.testing.assert_close(aim.targets, kept, rtol=1e-3, atol=1e-3)


@given(st.integers(20, 200), st.integers(2, 12), st.integers(0, 9))
def test_a_window_slides_over_groups_of_like_losses(samples, epochs, seed):
    chosen = SlidingWindow(samples, epochs, seed)
    losses = np.random.default_rng(seed).permutation(np.repeat(np.arange(5.0), 40))[:samples]
    for epoch in range(epochs):
        ids = chosen.ids(epoch)
        assert len(set(ids)) == len(ids) <= round(0.9 * samples)
        if epoch == 0 or epoch >= 0.875 * epochs:
            assert len(ids) == round(0.9 * samples)
        else:
            assert len(ids) > 0
        chosen.observe(np.arange(samples), losses.astype(np.float32))


def test_few_labels_or_samples_of_its_own_tell_how_validation_goes(task):
    first = {}
    for arm in ("auto-told", "turn-accuracy", "turn-100", "turn-holdout"):
        plan = Plan("random40", arm, 30)
        selection = selection_of(plan, task, SETTINGS.batch_size)
        for _ in train(plan, task, SETTINGS, selection):
            pass
        figures = [record["validation"] for record in selection.pruner.history]
        assert len(set(figures)) > 3
        first[arm] = figures[0]
        if arm == "turn-accuracy":
            assert all(round(figure * 200 / 100, 3) % 1 == 0 for figure in figures)
        else:
            assert all(0 < figure < 1 for figure in figures)
    assert len(set(first.values())) == 4  # each is of other labels, or another figure of the same


def test_todays_rule_is_given_nothing_or_the_labels_or_a_figure(task):
    given = {}
    for arm in AUTO:
        plan = Plan("random40", arm, 3)
        selection = selection_of(plan, task, SETTINGS.batch_size)
        epochs = list(train(plan, task, SETTINGS, selection))
        assert all(epoch.worst <= epoch.accuracy for epoch in epochs)
        figures = [record.get("validation") for record in selection.pruner.history]
        given[arm] = figures != [None] * 3, "of the same label" in str(selection.pruner.advice)
    assert given == {"auto-alone": (False, False), "auto-told": (True, False), "auto-labels": (False, True)}


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_an_optimizer_of_either_kind_learns(task, optimizer):
    settings = replace(SETTINGS, optimizer=optimizer, rate=0.1 if optimizer == "sgd" else 1e-3)
    ends = [epoch.accuracy for epoch in train(Plan("clean", "regular", 8), task, settings)]
    assert ends[-1] > 30


@pytest.fixture(scope="module")
def regular_ends(task):
    return [epoch.accuracy for epoch in train(Plan("random40", "regular", 8), task, SETTINGS)]


@pytest.mark.parametrize("arm", ["seta", "regular-elr", "bounded-elr", "small-loss", "regular-decay",
                                 "regular-smoothing", "margin", "bounded-margin", "bounded-mean",
                                 "regular-step", "regular-constant",
                                 "regular-warm"])  # fmt: skip
def test_every_arm_trains_in_its_own_way(task, regular_ends, arm):
    ends = [epoch.accuracy for epoch in train(Plan("random40", arm, 8), task, SETTINGS)]
    assert ends != regular_ends
    assert ends[-1] > 30


# -- the networks


@pytest.mark.parametrize("make", [Layers, Convolutions, NormalisedConvolutions])
def test_a_network_gives_scores_of_each_class_and_learns_in_every_layer(make):
    width = 3 * 16**2 if make is NormalisedConvolutions else 28**2
    network = make(width, (8, 7) if make is Layers else (8, 9, 16), 5, 0.5)
    scores = network(torch.randn(6, width).bfloat16())
    assert (scores.shape, scores.dtype) == ((6, 5), torch.float32)
    scores.square().sum().backward()
    assert all(weights.grad.abs().sum() > 0 for weights in network.parameters())


def test_images_are_mirrored_in_training_alone():
    network = NormalisedConvolutions(3 * 16**2, (8, 9, 16), 5, 0.0)
    image = torch.randn(1, 3, 16, 16)
    both = torch.stack([image, image.flip(3)]).flatten(1)
    network.formed = torch.nn.Conv2d(3, 16, 16)
    network.train()
    seen = {tuple(network(both[:1].repeat(64, 1)).unique(dim=0)[:, 0].tolist())}
    network.eval()
    plain, mirrored = network(both)[:, 0].tolist()
    assert seen == {tuple(sorted((plain, mirrored)))}
    assert plain != mirrored
    assert network(both[:1].repeat(64, 1)).unique(dim=0).shape[0] == 1


# -- a run


def test_a_run_visits_what_its_plan_says_and_is_the_same_again(task):
    plan = Plan("random40", "known-wrong", 10, seed=3)
    epochs = list(train(plan, task, SETTINGS))
    assert [epoch.visits for epoch in epochs] == [500] * 2 + [300] * 8
    assert [epoch.found for epoch in epochs[:2]] == [None, None]
    left_out = min(200, np.count_nonzero(task.wrong)) / 200
    assert {epoch.found for epoch in epochs[2:]} == {round(100 * left_out, 1)}
    assert list(train(plan, task, SETTINGS)) == epochs
    assert list(train(Plan("random40", "known-wrong", 10, seed=4), task, SETTINGS)) != epochs


def test_what_would_be_learnt_by_heart_hurts_and_leaving_it_out_helps(task):
    ends = {
        arm: list(train(Plan("random40", arm, 30), task, SETTINGS))[-1] for arm in ("regular", "known-wrong", "bounded")
    }
    assert ends["known-wrong"].accuracy > ends["regular"].accuracy + 8
    assert ends["bounded"].accuracy > ends["regular"].accuracy + 2
    assert ends["bounded"].found > 60


def test_auto_is_not_told_how_many_are_wrong_and_prunes_once_validation_has_turned(task):
    plan = Plan("clean", "turn-accuracy", 60)
    assert plan.prune == Plan("random40", "turn", 60).prune == 0.45
    epochs = list(train(plan, task, SETTINGS))
    turned = find_onset([{"number": at, "validation": one.validation} for at, one in enumerate(epochs)]).onset
    pruned = [epoch.found is not None for epoch in epochs]
    first = len(epochs) if turned is None else turned + 1
    assert pruned == [False] * first + [True] * (len(epochs) - first)
    with pytest.raises(ValueError, match="Got auto, of which runs are recorded"):
        next(train(Plan("random40", "auto", 20), task, SETTINGS))


def test_told_nothing_and_never_turned_is_regular_training_in_its_order(task):
    epochs, in_its_order, regular = (
        list(train(Plan("clean", arm, 4, seed=1), task, SETTINGS)) for arm in ("turn", "regular-delivered", "regular")
    )
    assert {epoch.found for epoch in epochs} == {None}
    assert in_its_order == epochs
    assert regular != epochs


# -- the grid


def small_plans():
    return [Plan("random40", arm, epochs) for arm in ("regular", "bounded") for epochs in (2, 3)]


def test_a_grid_that_was_stopped_goes_on_where_it_stood(task, tmp_path):
    asked = []

    def task_of(kind):
        asked.append(kind)
        return task

    results = Runs(tmp_path / "runs.jsonl.bz2")
    assert run(small_plans()[:3], task_of, results, SETTINGS) == 3
    assert run(small_plans(), task_of, results, SETTINGS) == 1
    assert run(small_plans(), task_of, results, SETTINGS) == 0
    assert asked == ["random40"] * 2
    assert [facts["name"] for facts in results.read()] == sorted(plan.name for plan in small_plans())


def test_the_facts_of_a_run(task):
    seen = []
    facts = measure(Plan("random40", "bounded", 5, 1), task, SETTINGS, lambda: seen.append(1))
    assert len(seen) == 5
    assert json.loads(json.dumps(facts)) == facts
    assert facts["visits"] == sum(facts["curves"]["visits"]) == 500 + 4 * 300
    assert facts["saved_percent"] == 32.0
    assert facts["accuracy"] == facts["curves"]["accuracy"][-1]
    assert {len(curve) for curve in facts["curves"].values()} == {5}
    assert facts["versions"].keys() == {"numpy", "torch"}
    assert "thread" in facts["hardware"]
    assert ("without bfloat16" in facts["hardware"]) == (precision_of("cpu") == torch.float32)
