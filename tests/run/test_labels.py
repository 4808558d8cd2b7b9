"""The labels that a run takes from its data set."""

import warnings

import datasets
import numpy as np
import pytest
import torch
from datasets import ClassLabel, Features, Value
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Subset, TensorDataset

from prunedata import Pruner, Schedule
from prunedata.errors import ForeignStore, LossError, PrunedataError
from prunedata.run.frameworks import labels_in
from prunedata.store.run_store import read_run
from tests.common.strategies import SEEDS

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
@pytest.mark.parametrize("within", [lambda data: data, DataLoader])
def test_classes_are_found(targets, within):
    np.testing.assert_array_equal(labels_in(within(Images(targets))), CLASSES)


def test_a_part_has_the_classes_of_its_rows():
    places = [5, 1, 7, 2, 30, 33]
    part = Subset(Images(CLASSES), places)
    np.testing.assert_array_equal(labels_in(part), CLASSES[places])
    np.testing.assert_array_equal(labels_in(DataLoader(part), "targets"), CLASSES[places])


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
    np.testing.assert_array_equal(labels_in(of_hugging_face(names=("topic", "labels"))), CLASSES)
    assert labels_in(of_hugging_face(names=("topic",))) is None  # it need not be what is trained on
    assert labels_in(TensorDataset(torch.zeros(SAMPLES, 1), torch.rand(SAMPLES))) is None


def test_labels_are_read_without_the_transform_of_a_hugging_face_data_set():
    """It would open each image, and draw random numbers with which the training begins then."""
    read = []
    data = of_hugging_face().with_transform(lambda batch: read.append(torch.rand(1)) or batch)
    np.testing.assert_array_equal(labels_in(data), CLASSES)
    np.testing.assert_array_equal(labels_in(data, "label"), CLASSES)
    assert not read


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


# Labels that come with the losses.


def train(run, *, labels, rare, wrong, stop=None):
    """Go on with a run to its end, or until ``stop`` batches were observed; return what its epochs left out."""
    out, done = [], 0
    for epoch in run.epochs():
        for ids in epoch.batches(32):
            run.observe(losses_of(epoch, rare, wrong)[ids], ids, labels=None if labels is None else labels[ids])
            done += 1
            if done == stop:
                return None
        out.append(~epoch.keep)
    return np.array(out)


def setting(samples, every, seed):
    random = np.random.default_rng(seed)
    classes = random.permutation(np.where(np.arange(samples) % every == 0, 1, 0))
    return {"labels": classes, "rare": classes == 1, "wrong": random.random(samples) < 0.1}


@given(
    st.integers(40, 300), st.integers(5, 20), SEEDS, st.sampled_from(["delivery", "weight"]), st.none() | st.just(0.1)
)
@pytest.mark.filterwarnings("ignore::prunedata.errors.UnweighedWarning")
def test_labels_that_come_with_losses_are_as_those_that_were_given(samples, every, seed, leave_out, holdout):
    how = setting(samples, every, seed)
    runs = [Pruner(samples, epochs=12, seed=seed, leave_out=leave_out, holdout=holdout, labels=given)
            for given in (how["labels"], None)]  # fmt: skip
    given = train(runs[0], **how | {"labels": None})
    came = train(runs[1], **how)
    np.testing.assert_array_equal(given, came)
    assert runs[0].advice == runs[1].advice


def test_the_network_s_guess_is_another_class_than_they_are():
    how, logits = setting(60, 3, 0), np.random.default_rng(0).normal(size=(60, 2))
    run = Pruner(60, epochs=6)
    for epoch in run.epochs():
        for ids in epoch.batches(20):
            run.observe(
                losses_of(epoch, how["rare"], how["wrong"])[ids], ids, logits=logits[ids], labels=how["labels"][ids]
            )
    np.testing.assert_array_equal(run.arrays["guess"], 1 - how["labels"])


def test_they_move_with_their_rows(tmp_path):
    how, order = setting(60, 5, 1), np.random.default_rng(2).permutation(60)
    store, keys = tmp_path / "run.zarr", np.arange(60)
    train(Pruner(60, epochs=9, keys=keys, store=store), **how, stop=12)
    run = Pruner(60, epochs=9, keys=keys, store=store, resume=True)
    for epoch in run.epochs():
        for ids in epoch.batches(16):
            run.observe(losses_of(epoch, how["rare"], how["wrong"])[ids], ids, labels=how["labels"][ids])
        break
    run.commit()
    del run
    moved = {name: array[order] for name, array in how.items()}
    run = Pruner(60, epochs=9, keys=keys[order], store=store, resume=True, follow=True)
    train(run, **moved | {"labels": None})
    assert not any("labels=" in sentence for sentence in run.advice.evidence)
    np.testing.assert_array_equal(read_run(store).state.labels, moved["labels"])


def test_what_is_no_label_is_refused_and_ignored_ones_are_a_class_of_their_own():
    run = Pruner(8, epochs=9)
    run.begin_epoch()
    ids = np.arange(8)
    for wrong in (np.zeros(7, int), np.zeros(8), np.zeros((8, 2), int), np.full(8, -1), np.full(8, 1 << 15), ["a"] * 8):
        with pytest.raises(LossError, match="labels"):
            run.observe(np.ones(8), ids, labels=wrong)
    run.observe(np.ones(8), ids, labels=np.array([0, 1, -100, 3, 0, 1, -100, 3]))
    run.end_epoch()
    assert run.visits.tolist() == [1] * 8


def test_others_than_the_run_was_given_are_noticed():
    """As where ids and labels do not belong together."""
    run = Pruner(8, epochs=9, labels=[0, 1] * 4)
    run.begin_epoch()
    with pytest.raises(LossError, match="4 of 8"):
        run.observe(np.ones(8), np.arange(8), labels=[0, 0] * 4)
    run.observe(np.ones(8), np.arange(8), labels=[0, 1] * 4)


@pytest.mark.parametrize("given", [None, [0, 1] * 4])
def test_labels_that_change_after_the_first_epoch_are_noticed_in_the_first_batch_of_the_next(given):
    run, batches, labels = Pruner(8, epochs=9, labels=given), (np.arange(4), np.arange(4, 8)), np.array([0, 1] * 4)
    for number, epoch in zip(range(3), run.epochs(), strict=False):
        assert run.wants_labels == (given is None)
        if epoch.number:
            with pytest.raises(LossError, match=r"saw in earlier epochs. Got others for 1 of 4 samples \(ids 3\)"):
                run.observe(np.ones(4), batches[0], labels=[0, 1, 0, number + 1])
        for ids in batches:
            run.observe(np.ones(4), ids, labels=labels[ids])
        assert run.wants_labels == (given is None and not number)
    assert (run.visits == 3).all()


def test_a_run_that_resumes_after_labels_were_corrected_says_to_begin_anew(tmp_path):
    Pruner(8, epochs=9, labels=[0, 1] * 4, store=tmp_path / "run")
    with pytest.raises(ForeignStore, match=r"labels changed.* after correcting labels, name another store"):
        Pruner(8, epochs=9, labels=[0, 0] * 4, store=tmp_path / "run", resume=True)


# Labels that a wrapped loader's batches have.


class Rows:
    """A data set that does not say which of its parts are labels. A sample begins with its place."""

    def __init__(self, sample, samples):
        self.sample, self.samples = sample, samples

    def __len__(self):
        return self.samples

    def __getitem__(self, place):
        return self.sample(place)


def follow(run, loader, rare, wrong, *, labels=None, stop=None):
    """As :func:`train`, with a loader; ``labels`` are those that the loop passes."""
    out, done = [], 0
    for epoch in run.epochs():
        for batch in loader:
            places = batch[0] if isinstance(batch, list) else batch["place"]
            losses = torch.tensor(losses_of(epoch, rare, wrong)[places.numpy()], requires_grad=True)
            run.observe(losses, labels=None if labels is None else torch.tensor(labels)[places]).backward()
            done += 1
            if done == stop:
                return None
        out.append(~epoch.keep)
    return np.array(out)


def wrapped(sample, samples, seed=0, batch=32, **options):
    run = Pruner(epochs=12, seed=seed, **options)
    return run, run.wrap(DataLoader(Rows(sample, samples), batch_size=batch, shuffle=True))


@given(
    st.integers(60, 200), st.integers(5, 20), SEEDS, st.integers(1, 32), st.sampled_from(["delivery", "weight"]),
    st.floats(0, 1, exclude_max=True), st.sampled_from([
        lambda labels, at: (at, labels[at]),
        lambda labels, at: {"place": at, "labels": labels[at]},
        lambda labels, at: {"place": at, "label": bool(labels[at])},
    ]),
)  # fmt: skip
@settings(max_examples=20)
def test_a_loop_that_passes_no_labels_decides_as_one_that_does(samples, every, seed, batch, leave_out, stop, form):
    how = setting(samples, every, seed)
    labels = how.pop("labels")
    kept = [wrapped(lambda at: form(labels, at), samples, seed, batch, leave_out=leave_out) for _ in range(3)]
    passed = follow(*kept[0], **how, labels=labels)
    taken = follow(*kept[1], **how)
    np.testing.assert_array_equal(taken, passed)
    assert kept[0][0].advice == kept[1][0].advice
    batches = sum(-(-len(row) // batch) for row in map(np.flatnonzero, ~passed))  # at least
    follow(*kept[2], **how, stop=max(1, int(stop * batches)))
    resumed = wrapped(lambda at: form(labels, at), samples, seed, batch, leave_out=leave_out)
    resumed[0].load_state_dict(kept[2][0].state_dict())
    rest = follow(*resumed, **how)
    np.testing.assert_array_equal(rest, passed[-len(rest) :])
    assert resumed[0].advice == kept[0][0].advice


@pytest.mark.parametrize(
    "sample",
    [
        lambda at: (at, at),  # its number
        lambda at: (at, float(at % 2)),
        lambda at: (at, torch.arange(2)),
        lambda at: (at, at % 2, 0),
        lambda at: (at, 40_000 + at % 2),
        lambda at: (at, -1 - at % 2),
        lambda at: (at, "ab"[at % 2]),
        lambda at: {"place": at, "length": at % 2},
    ],
)
def test_what_need_not_be_classes_is_not_taken(sample):
    how = setting(200, 10, 3)
    del how["labels"]
    run, loader = wrapped(sample, 200)
    out = follow(run, loader, **how)
    alone, other = wrapped(lambda at: (at, 0.5), 200)
    np.testing.assert_array_equal(out, follow(alone, other, **how))
    assert any("labels=" in sentence for sentence in run.advice.evidence)


def test_numbers_that_change_from_epoch_to_epoch_are_told_and_the_run_goes_on():
    random, how = np.random.default_rng(0), setting(200, 10, 3)
    del how["labels"]
    run, loader = wrapped(lambda at: (at, random.integers(2)), 200)
    with pytest.warns(UserWarning, match=r"labels=np\.zeros"):
        out = follow(run, loader, **how)
    assert len(out) == 12


SORTED, OTHERS = ["ant", "mole", "zebra"], ["zebra", "ant", "mole"]


@pytest.mark.parametrize(
    ("names", "logits", "warned"), [(SORTED, True, False), (OTHERS, True, True), (OTHERS, False, False)]
)
def test_names_in_another_order_than_the_logits_are_told(names, logits, warned):
    numbers = np.arange(60) % 3
    run, loader = wrapped(lambda at: (at, numbers[at]), 60, labels=np.array(names)[numbers], leave_out="nothing")
    run.begin_epoch()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for places, _ in loader:
            run.observe(torch.ones(len(places)), logits=torch.eye(3)[places % 3] if logits else None)
    assert bool(seen) == warned
    assert all("pass labels= as the numbers of the classes" in str(one.message) for one in seen)
