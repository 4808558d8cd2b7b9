"""The labels that a run takes from its data set."""

import datasets
import numpy as np
import pytest
import torch
from datasets import ClassLabel, Features, Value
from torch.utils.data import DataLoader, Subset, TensorDataset

from prunedata import Pruner, Schedule
from prunedata.errors import PrunedataError
from prunedata.run.frameworks import labels_in

SAMPLES = 60
CLASSES = np.arange(SAMPLES) % 3


class Images:
    """As torchvision has them."""

    target_transform = None

    def __init__(self, targets, samples=SAMPLES):
        self.targets, self.samples = targets, samples

    def __len__(self):
        return self.samples

    def __getitem__(self, place):
        return place, self.targets[place]


class Part:
    """As torch's Subset."""

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, place):
        return self.dataset[self.indices[place]]


class Loader:
    """It has a data set, and no rows of its own."""

    def __init__(self, dataset):
        self.dataset = dataset


def known(pruner):
    """The labels that a run has."""
    for epoch in pruner.epochs():
        pruner.observe(np.ones(epoch.kept), np.flatnonzero(epoch.keep))
        break
    return saved_labels(pruner)


def saved_labels(pruner):
    saved = pruner.state_dict()["arrays"].get("labels")
    return None if saved is None else np.frombuffer(saved["data"], saved["dtype"])


@pytest.mark.parametrize("targets", [CLASSES, CLASSES.tolist(), CLASSES.astype(np.uint8)])
@pytest.mark.parametrize("within", [lambda data: data, Loader])
def test_classes_are_found(targets, within):
    np.testing.assert_array_equal(labels_in(within(Images(targets))), CLASSES)


def test_a_part_has_the_classes_of_its_rows():
    places = [5, 1, 7, 2, 30, 33]
    part = Part(Images(CLASSES), places)
    np.testing.assert_array_equal(labels_in(part), CLASSES[places])
    np.testing.assert_array_equal(labels_in(Loader(part), "targets"), CLASSES[places])


class Shuffled(Images):
    """A data set of the user's, around another whose rows it delivers in an order of its own."""

    def __init__(self):
        super().__init__(None)
        self.dataset = Images(CLASSES)


def transformed():
    data = Images(CLASSES)
    data.target_transform = abs
    return data


@pytest.mark.parametrize(
    "data",
    [
        Images(np.linspace(0, 1, SAMPLES)),
        Images(np.arange(SAMPLES)),
        Images(np.zeros((SAMPLES, 4), int)),
        Images(CLASSES[:-1]),
        Images(["a", "b", "c"] * 20),
        Images([[1], [2, 3]] * 30),
        Images(None),
        transformed(),
        Shuffled(),
        list(range(SAMPLES)),
        SAMPLES,
        None,
    ],
    ids=[
        "numbers",
        "ids",
        "several",
        "fewer",
        "text",
        "ragged",
        "none",
        "transformed",
        "around",
        "list",
        "int",
        "nothing",
    ],
)
def test_what_may_be_no_classes_is_not_taken(data):
    assert labels_in(data) is None


def of_torch():
    inputs = torch.zeros(2 * SAMPLES, 3)
    data = TensorDataset(inputs, torch.as_tensor(np.repeat(CLASSES, 2)))
    return DataLoader(Subset(data, range(0, 2 * SAMPLES, 2)), batch_size=8)


def of_hugging_face(*, names=("label",)):
    features = Features({name: ClassLabel(names=["a", "b", "c"]) for name in names} | {"text": Value("string")})
    rows = {name: CLASSES.tolist() for name in names} | {"text": ["."] * SAMPLES}
    return datasets.Dataset.from_dict(rows, features=features)


def test_classes_are_found_in_the_data_sets_of_frameworks():
    np.testing.assert_array_equal(labels_in(of_torch()), CLASSES)
    np.testing.assert_array_equal(labels_in(DataLoader(of_hugging_face())), CLASSES)
    assert labels_in(of_hugging_face(names=("label", "topic"))) is None  # either may be trained on
    assert labels_in(TensorDataset(torch.zeros(SAMPLES, 1), torch.rand(SAMPLES))) is None


def test_a_loop_begins_with_the_classes_of_the_wrapped_loader():
    pruner = Pruner(epochs=9)
    loader = pruner.wrap(of_torch())
    for _ in pruner.epochs():
        for inputs, _ in loader:
            pruner.observe(inputs.sum(1))
        break
    np.testing.assert_array_equal(saved_labels(pruner), CLASSES)


def test_a_column_that_is_not_there_is_an_error():
    with pytest.raises(PrunedataError, match="category"):
        labels_in(Images(CLASSES), "category")


def test_only_auto_takes_them_and_given_ones_come_first():
    data = Images(CLASSES)
    np.testing.assert_array_equal(known(Pruner(data, epochs=9)), CLASSES)
    assert known(Pruner(data, Schedule.steady(9), prune=0.2)) is None
    assert known(Pruner(SAMPLES, epochs=9)) is None
    other = CLASSES[::-1]
    np.testing.assert_array_equal(known(Pruner(data, epochs=9, labels=other)), other)


def test_they_are_held_against_the_data_when_a_run_goes_on(tmp_path):
    store = tmp_path / "run.zarr"
    for _ in Pruner(Images(CLASSES), epochs=9, store=store, leave_out="nothing").epochs():
        break
    Pruner(Images(CLASSES), epochs=9, store=store, leave_out="nothing", resume=True)
    with pytest.raises(PrunedataError, match="labels"):
        Pruner(Images(CLASSES[::-1]), epochs=9, store=store, leave_out="nothing", resume=True)


def losses_of(epoch, rare, wrong):
    """Common samples are learned, those of a rare class late; wrong labels keep their losses."""
    fallen = 2.0 * 0.7**epoch.number
    return np.where(wrong, 3.0, np.where(rare, 2.8, fallen)) + 0.01 * np.arange(wrong.size) / wrong.size


def left_out(data, samples, rare, wrong):
    pruner = Pruner(data, epochs=12)
    for epoch in pruner.epochs():
        ids = np.flatnonzero(epoch.keep)
        pruner.observe(losses_of(epoch, rare, wrong)[ids], ids)
    return ~epoch.keep, pruner.advice


def test_a_rare_class_survives_where_the_data_set_has_classes():
    samples = 400
    classes = np.where(np.arange(samples) % 20 == 0, 1, 0)
    rare, wrong = classes == 1, np.arange(samples) % 10 == 3
    out, advice = left_out(Images(classes, samples), samples, rare, wrong)
    assert out[wrong].all()
    assert not out[rare].any()
    assert not any("labels=" in sentence for sentence in advice.evidence)
    out, advice = left_out(samples, samples, rare, wrong)
    assert out[rare].all()
    assert any("labels=" in sentence for sentence in advice.evidence)
