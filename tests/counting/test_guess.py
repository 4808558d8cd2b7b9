"""What the network takes each sample for: votes of its visits, the same wherever a run stops, and clear refusals."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, Schedule
from prunedata.counting.guess import MOST_CLASSES, two_likeliest
from prunedata.errors import LossError, PrunedataError
from tests.common.programs import FEWER

SAMPLES, EPOCHS = 24, 5
NOTHING_PRUNED = Schedule(EPOCHS, EPOCHS, 1, 1, 0)


def make(labels=None, **options):
    options = {"leave_out": "nothing", **options}
    return Pruner(SAMPLES, NOTHING_PRUNED, prune=0, labels=labels, **options)


def logits_of(ids, epoch, classes, seed):
    """Few values, so that they tie."""
    return np.stack([np.random.default_rng((seed, epoch, int(one))).integers(0, 4, classes) for one in ids]) + 0.0


def plain(labels, classes, seed, epochs=EPOCHS, visits=lambda ids, epoch: ids):
    """The rule as a loop over single visits."""
    held, strength = [-1] * SAMPLES, [0] * SAMPLES
    for epoch in range(epochs):
        for one in visits(range(SAMPLES), epoch):
            row = list(logits_of([one], epoch, classes, seed)[0])
            order = sorted(range(classes), key=lambda at: (-row[at], at))
            vote = next(at for at in order if labels is None or at != labels[one])
            if vote == held[one]:
                strength[one] = min(15, strength[one] + 1)
            elif strength[one] > 1:
                strength[one] -= 1
            else:
                held[one], strength[one] = vote, 1
    return held


LABELS = st.none() | st.lists(st.integers(0, 2), min_size=SAMPLES, max_size=SAMPLES)


def train(run, classes, seed, size, *, form=np.asarray, stop=None, again=()):
    """The epochs that are left; with `stop` saved and loaded after so many batches, all in all."""
    done = 0
    while not run._engine.is_finished:
        epoch = run.begin_epoch()
        for ids in [*epoch.batches(size), *([np.array(again)] if len(again) else [])]:
            run.observe(np.cos(ids * 1.0), ids, logits=form(logits_of(ids, epoch.number, classes, seed)))
            done += 1
            if done == stop:
                return run.state_dict()
        run.end_epoch()
    return run


@given(LABELS, st.sampled_from([3, 5, 5000]), st.integers(0, 99), st.integers(1, 30), st.integers(1, 40))
def test_it_is_the_vote_of_all_visits_wherever_a_run_stops(labels, classes, seed, size, stop):
    run = train(make(labels), classes, seed, size)
    assert run.arrays["guess"].tolist() == plain(labels, classes, seed)
    kept = run._engine.ledger.arrays.finished["guess"]
    assert kept.dtype == (np.uint32 if classes == 5000 else np.uint16)
    state = train(make(labels), classes, seed, size, stop=stop)
    if isinstance(state, dict):
        resumed = make(labels)
        resumed.load_state_dict(state)
        assert train(resumed, classes, seed, size).arrays["guess"].tolist() == run.arrays["guess"].tolist()


@given(LABELS, st.integers(0, 99), st.lists(st.integers(0, SAMPLES - 1), max_size=40))
def test_a_sample_that_is_visited_again_votes_again(labels, seed, again):
    run = train(make(labels), 4, seed, 7, again=again)
    assert run.arrays["guess"].tolist() == plain(labels, 4, seed, visits=lambda ids, _: [*ids, *again])


@given(st.integers(0, 99), st.sampled_from([torch.float32, torch.bfloat16, torch.float16, torch.float64]))
def test_tensors_say_what_arrays_say(seed, dtype):
    from prunedata.adapters.torch.losses import two_likeliest as of_tensor

    logits = torch.from_numpy(logits_of(range(9), 0, 6, seed)).to(dtype)
    logits[3, 2], logits[5] = torch.nan, -torch.inf
    said, classes = of_tensor(logits)
    assert classes == 6
    assert said.tolist() == two_likeliest(logits.float().numpy())[0].tolist() == two_likeliest(logits)[0].tolist()
    assert said[3] == -1
    one = logits[:, 0]
    assert of_tensor(one)[0].tolist() == two_likeliest(one.float().numpy())[0].tolist()


def test_one_logit_tells_two_classes():
    run = make(labels=np.arange(SAMPLES) % 2)
    run.begin_epoch()
    ids = np.arange(SAMPLES)
    run.observe(np.ones(SAMPLES), ids, logits=np.cos(ids))
    assert run.arrays["guess"].tolist() == (1 - ids % 2).tolist()
    alone = make()
    alone.begin_epoch()
    alone.observe(np.ones(SAMPLES), ids, logits=np.cos(ids))
    assert alone.arrays["guess"].tolist() == (np.cos(ids) > 0).astype(int).tolist()


def test_without_logits_nothing_is_kept():
    run = make(labels=np.arange(SAMPLES) % 3)
    for epoch in run.epochs():
        run.observe(np.ones(SAMPLES), np.arange(SAMPLES))
        del epoch
    assert "guess" not in run.arrays
    assert not [name for name in run.state_dict()["arrays"] if "guess" in name]


def test_some_batches_may_have_none():
    run = make()
    run.begin_epoch()
    run.observe(np.ones(4), np.arange(4))
    run.observe(np.ones(4), np.arange(4, 8), logits=np.eye(4))
    run.observe(np.ones(4), np.arange(8, 12))
    run.observe(np.ones(4), np.arange(12, 16))
    assert run.arrays["guess"].tolist() == [-1] * 4 + [0, 1, 2, 3] + [-1] * 16


@FEWER
@given(st.integers(0, 5), st.booleans())
def test_a_batch_with_logits_that_are_no_numbers_is_named_and_all_others_are_recorded(bad, later):
    run = make()
    run.begin_epoch()
    batches = [np.arange(at, at + 4) for at in range(0, SAMPLES, 4)]
    for number, ids in enumerate(batches):
        logits = np.tile(np.eye(5)[2], (4, 1))
        logits[1, 0] = np.nan if number == bad else 0
        if number == bad == 0:  # the first of an epoch is looked at at once
            with pytest.raises(LossError, match=rf"Got NaN for the samples \[{ids[1]}\] in batch {bad} "):
                run.observe(np.ones(4), ids, logits=logits)
        else:
            run.observe(np.ones(4), ids, logits=logits)
    if bad:
        with pytest.raises(LossError, match=rf"Got NaN for the samples \[{batches[bad][1]}\] in batch {bad} "):
            _ = run.visits
    if later:
        run.observe(np.ones(4), batches[bad], logits=np.eye(5)[[2] * 4])
    seen = np.ones(SAMPLES, int)
    seen[batches[bad]] = later
    assert run.visits.tolist() == seen.tolist()
    assert run.arrays["guess"].tolist() == np.where(seen, 2, -1).tolist()


@pytest.mark.parametrize(
    ("logits", "told"),
    [
        (np.zeros((4, 3, 2)), r"Got shape \(4, 3, 2\)"),
        (np.zeros((4, 1)), r"logits.squeeze\(1\)"),
        (np.zeros((4, MOST_CLASSES + 1), np.float16), "of 2 to 32,768 classes"),
        (np.zeros((4, 3), int), "a floating dtype"),
        (np.zeros((3, 4)), "Expected logits for each of 4 ids. Got those of 3"),
    ],
)
def test_logits_of_another_kind_are_refused_and_nothing_is_lost(logits, told):
    run = make()
    run.begin_epoch()
    with pytest.raises(LossError, match=told):
        run.observe(np.ones(4), np.arange(4), logits=logits)
    run.observe(np.ones(4), np.arange(4), logits=np.eye(4))
    assert run.visits.sum() == 4


def test_other_classes_than_before_are_refused():
    run = make()
    run.begin_epoch()
    run.observe(np.ones(4), np.arange(4), logits=np.eye(4))
    with pytest.raises(LossError, match=r"Expected logits of 4 classes, as the run has them\. Got 3"):
        run.observe(np.ones(3), np.arange(4, 7), logits=np.eye(3))
    run.observe(np.ones(4), np.arange(4, 8), logits=np.eye(4))
    assert run.visits.sum() == 8
    known = make(classes=10)
    known.begin_epoch()
    with pytest.raises(LossError, match="Expected logits of 10 classes"):
        known.observe(np.ones(4), np.arange(4), logits=np.eye(4))


@pytest.mark.parametrize("first", [1, -1, 7])
def test_labels_that_are_no_places_in_the_logits_are_refused(first):
    run = make(labels=first + np.arange(SAMPLES) % 3)
    run.begin_epoch()
    with pytest.raises(LossError, match="Expected labels from 0 to 2"):
        run.observe(np.ones(3), np.arange(3), logits=np.eye(3))


def test_a_sample_without_a_label_is_taken_for_any_class():
    labels = np.where(np.arange(SAMPLES) < 2, -100, np.arange(SAMPLES) % 3)
    run = make(labels=labels)
    run.begin_epoch()
    run.observe(np.ones(3), np.arange(3), logits=np.eye(3))
    assert run.arrays["guess"][:3].tolist() == [0, 1, 0]


def test_names_stand_in_their_order():
    labels = np.array(["cat", "dog", "ape"])[np.arange(SAMPLES) % 3]
    run = make(labels=labels)
    run.begin_epoch()
    run.observe(np.ones(3), np.arange(3), logits=np.array([[1.0, 3, 2], [1, 2, 3], [3, 2, 1]]))
    assert run.arrays["guess"][:3].tolist() == [2, 1, 1]  # cat is 1, dog 2 and ape 0


def test_names_of_some_classes_alone_are_refused():
    """Nobody can say where they stand in the logits."""
    run = make(labels=np.array(["cat", "dog"])[np.arange(SAMPLES) % 2])
    run.begin_epoch()
    with pytest.raises(LossError, match=r"Expected logits of 2 classes.* Got 3: .* labels as places in it"):
        run.observe(np.ones(3), np.arange(3), logits=np.eye(3))


@pytest.mark.parametrize(
    "labels",
    [np.zeros(23, int), np.zeros((24, 1), int), np.zeros(24), [[1], [1, 2]], [None] * 24, ["x" * 257] * 24, 3],
)
def test_labels_of_another_kind_are_refused(labels):
    with pytest.raises(PrunedataError, match="Expected labels of"):
        make(labels=labels)


def test_labels_of_too_many_classes_are_refused():
    with pytest.raises(PrunedataError, match="at most 32,768 classes"):
        Pruner(40_000, epochs=3, labels=np.arange(40_000))


@pytest.mark.parametrize("labels", [None, np.arange(SAMPLES) % 4, np.array(["a", "b"])[np.arange(SAMPLES) % 2]])
def test_a_run_goes_on_with_the_labels_that_it_began_with(tmp_path, labels):
    run = make(np.arange(SAMPLES) % 3, store=tmp_path / "run.zarr")
    run.begin_epoch()
    run.observe(np.ones(SAMPLES), np.arange(SAMPLES))
    run.end_epoch()
    del run
    with pytest.raises(PrunedataError, match="labels: the stored run has") as caught:
        make(labels, store=tmp_path / "run.zarr", resume=True)
    assert ("rows were moved or labels changed" in str(caught.value)) == (labels is not None)
    assert make(list(np.arange(SAMPLES) % 3), store=tmp_path / "run.zarr", resume=True).next_epoch == 1
