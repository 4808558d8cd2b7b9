"""The demo on a stream: the same training as map-style, and a table that says whether accuracies agree."""

import json

import keras
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.common.data import digits
from benchmarks.common.networks import build
from benchmarks.common.shards import write_shards
from benchmarks.demo import __main__ as demo
from benchmarks.demo.stream import FRAMEWORKS, agreement
from benchmarks.demo.stream_keras import lenet
from benchmarks.demo.stream_loaders import Decode, Shuffled
from benchmarks.demo.training import WEIGHT_DECAY
from prunedata import Schedule
from prunedata.plan.cost import count_kept

EPOCHS, SEEDS = 4, 2


OPTIONS = ["--epochs", str(EPOCHS), "--seeds", str(SEEDS), "--seed", "3"]


@pytest.fixture
def told(monkeypatch, tmp_path, capsys):
    """What the demo prints, run here: each process of its own would import everything anew."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)

    def run(framework, *arguments):
        assert demo.main(["--framework", framework, *OPTIONS, *arguments]) == 0
        assert list(tmp_path.iterdir()) == [], "something was left"
        return capsys.readouterr().out

    return run


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning:keras")
@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_both_ways_train_on_what_the_schedule_says(framework, told):
    facts = json.loads(told(framework, "--json"))
    schedule = Schedule.from_dict(facts["schedule"])
    assert (facts["framework"], facts["seeds"], facts["samples"]) == (framework, [3, 4], 1437)
    kept = count_kept(1437, facts["prune"], facts["batch_size"])
    assert kept < 1437
    visits = [kept if schedule.prunes(epoch) else 1437 for epoch in range(EPOCHS)]
    assert len(schedule.pruned_epochs) > 0
    assert list(facts["runs"]) == ["map-style", framework]
    for runs in facts["runs"].values():
        assert [run["seed"] for run in runs] == [3, 4]
        for run in runs:
            assert run["visits"] == visits
            assert run["pruned_epochs"] == list(schedule.pruned_epochs)
            assert len(run["accuracies"]) == EPOCHS
            assert run["accuracy_percent"] == pytest.approx(100 * sum(run["accuracies"][-3:]) / 3)
            assert run["accuracy_percent"] > 60, "it did not learn: ids, images and labels do not belong together"
    found = [[run["accuracy_percent"] for run in runs] for runs in facts["runs"].values()]
    assert {name: facts[name] for name in agreement(*found)} == agreement(*found)


def test_the_table(told):
    lines = told("iterable", "--seeds", "1").splitlines()
    rows = {cells[0]: cells[1:] for cells in map(str.split, lines) if cells}
    assert rows["map-style"][0] == rows["iterable"][0] == "1"
    assert rows["map-style"][:3] == rows["iterable"][:3]
    assert lines[-2].startswith("They ")
    assert "All runs prune by DroppingCount" in lines[-1]


ACCURACIES = st.lists(st.floats(0, 100), min_size=1, max_size=6)


@given(ACCURACIES, ACCURACIES)
def test_means_agree_within_the_spread_of_the_reference(reference, other):
    found = agreement(reference, other)
    assert found["spread_points"] == max(reference) - min(reference)
    assert found["difference_points"] == pytest.approx(np.mean(other) - np.mean(reference), abs=1e-9)
    assert found["agree"] == (abs(found["difference_points"]) <= found["spread_points"])


# -- the same training


def test_streams_decode_what_the_data_set_holds(tmp_path):
    data = digits()
    shards = write_shards(tmp_path, data, 32, 40, "png")
    decode, (images, labels) = Decode(data.train), data.train.batch(torch.arange(40))
    rows = list(Shuffled(shards.tables, seed=1))
    assert sorted(row["uid"] for row in rows) == list(range(40))
    assert [row["uid"] for row in rows] != list(range(40))
    for row in rows:
        assert torch.allclose(decode(row["image"]), images[row["uid"]], atol=1e-6)
        assert row["label"] == labels[row["uid"]]


def test_each_pass_has_its_order(tmp_path):
    rows = Shuffled(write_shards(tmp_path, digits(), 32, 40, "png").tables, seed=1)
    first, second = ([row["uid"] for row in rows] for _ in range(2))
    assert first != second
    assert sorted(first) == sorted(second)


@pytest.mark.parametrize(("channels", "classes"), [(3, 10), (1, 4)])
def test_lenet_of_keras_is_that_of_torch(channels, classes):
    theirs, ours = build("lenet", channels, classes), lenet(channels, classes)
    state = {name: part.detach().numpy() for name, part in theirs.named_parameters()}
    weights = [
        *(state["conv1.weight"].transpose(2, 3, 1, 0), state["conv1.bias"]),
        *(state["conv2.weight"].transpose(2, 3, 1, 0), state["conv2.bias"]),
        # Flat images are (channel, row, column) there, and (row, column, channel) here.
        state["fc1.weight"].reshape(120, 16, 5, 5).transpose(2, 3, 1, 0).reshape(400, 120),
        state["fc1.bias"],
        *(state["fc2.weight"].T, state["fc2.bias"], state["fc3.weight"].T, state["fc3.bias"]),
    ]
    fresh = ours.get_weights()
    for mine, other in zip(fresh, weights, strict=True):
        assert mine.shape == other.shape
        if mine.size > 500:  # else chance rules
            assert mine.std() == pytest.approx(other.std(), rel=0.1)
            assert abs(mine).max() == pytest.approx(abs(other).max(), rel=0.05)
    ours.set_weights(weights)
    images = torch.from_numpy(np.random.default_rng(0).normal(size=(5, channels, 32, 32)).astype(np.float32))
    scores = ours(images.permute(0, 2, 3, 1).numpy())
    assert np.allclose(keras.ops.convert_to_numpy(scores), theirs(images).detach().numpy(), atol=1e-5)
    decay = sum(float(loss) for loss in ours.losses)
    assert decay == pytest.approx(WEIGHT_DECAY / 2 * sum(float((part**2).sum()) for part in weights), rel=1e-4)
