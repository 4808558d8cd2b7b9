"""Arrays that a policy keeps, and visits with a high loss: counted, saved and refused with the run."""

import copy
import math
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, Schedule
from prunedata.counting.batches import Batches
from prunedata.counting.sample_arrays import SampleArrays
from prunedata.errors import PrunedataError
from prunedata.policies import LossRanked
from tests.common.strategies import SEEDS, pruner

SCHEDULE = Schedule(6, window=3, start=1, block=1, pruned_per_block=1)


def standing(run):
    """All of a run but its seconds."""
    state = run.state_dict()
    del state["state"]["meter"]
    return state


def arrays_of_a_state(spoil):
    run = Pruner(20, SCHEDULE, prune=5, policy=LossRanked(), classes=10)
    run.begin_epoch()
    run.observe(np.arange(15.0), np.arange(15))
    state = copy.deepcopy(run.state_dict())
    spoil(state["arrays"])
    return run, state


@pytest.mark.parametrize("name", ["loss", "high", "open-loss", "open-high"])
@pytest.mark.parametrize("how", ["missing", "short", "of another dtype"])
def test_a_state_without_the_policys_arrays_is_refused_and_changes_nothing(name, how):
    def spoil(arrays):
        if how == "missing":
            del arrays[name]
        elif how == "short":
            arrays[name]["data"] = arrays[name]["data"][:-4]
        else:
            arrays[name] = {"dtype": "<f8", "data": bytes(160)}

    run, state = arrays_of_a_state(spoil)
    before = standing(run)
    with pytest.raises(PrunedataError, match=rf"Expected an array {name} of shape \(20,\)"):
        run.load_state_dict(state)
    assert standing(run) == before


def test_an_open_epoch_shows_its_losses_and_leaves_the_arrays_alone():
    """What was selected by them must be selected again when the epoch is resumed."""
    run = Pruner(4, SCHEDULE, prune=2, policy=LossRanked(), classes=2)
    run.begin_epoch()
    run.observe(np.arange(4.0), np.arange(4))
    finished = run.state_dict()["arrays"]
    assert np.isnan(np.frombuffer(finished["loss"]["data"], np.float32)).all()
    assert not any(finished["high"]["data"])
    within = {name: array.tolist() for name, array in run.arrays.items()}
    run.arrays["mean_excess"][:] = 7
    run.end_epoch()
    assert within == {name: array.tolist() for name, array in run.arrays.items()}
    assert (run.arrays["loss"].tolist(), run.arrays["high"].tolist()) == ([0.0, 1.0, 2.0, 3.0], [0, 1, 1, 1])
    run.arrays["loss"][:] = 7
    assert run.arrays["loss"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert list(Pruner(4, SCHEDULE, prune=2).arrays) == ["mean_excess"]


@given(st.integers(1, 30), st.integers(2, 1000), SEEDS)
def test_high_counts_the_visits_with_a_loss_above_a_blind_guess(samples, classes, seed):
    run = pruner(samples, SCHEDULE, prune=0, classes=classes)
    feed, expected = np.random.default_rng(seed), [0] * samples
    for epoch in run.epochs():
        for batch in epoch.batches(7):
            ids = np.append(batch, feed.integers(0, samples, 3))
            losses = feed.uniform(0, 2 * math.log(classes), ids.size)
            losses[0] = math.log(classes)
            run.observe(losses, ids)
            for x, loss in zip(ids, losses, strict=True):
                expected[x] += loss > math.log(classes)
    assert run.arrays["high"].tolist() == expected
    assert run.arrays["high"].dtype == np.uint16
    assert (run.arrays["high"] <= run.visits).all()


@pytest.mark.parametrize("classes", [1, 0, -1, 2.5, "10", True])
def test_classes_that_make_no_sense_are_refused(classes):
    with pytest.raises(PrunedataError, match=r"Expected classes to be .* Got"):
        Pruner(5, SCHEDULE, prune=2, classes=classes)


def watching(make, change=None):
    @dataclass(frozen=True)
    class Watching:
        tolerance = 0.0
        needs_losses = True

        def arrays(self, samples):
            return make(samples)

        def update(self, arrays, ids, losses, means):
            if change is None:
                arrays["mine"][ids] = 3 * arrays["mine"][ids] + losses
            else:
                change(arrays, ids, losses, means)

        def scores(self, known):
            return known.arrays["mine"]

    return Watching()


@pytest.mark.parametrize(
    "made",
    [
        np.zeros(20, ">f4" if sys.byteorder == "little" else "<f4"),
        np.zeros(20, np.longdouble),
        np.zeros(20, np.complex64),
        np.zeros(20, np.bool_),
        np.zeros(19),
        np.zeros((20, 1)),
        [0.0] * 20,
    ],
    ids=str,
)
def test_arrays_that_a_store_cannot_keep_are_refused_when_the_run_is_made(made):
    with pytest.raises(PrunedataError, match=r"Expected the array mine of shape \(20,\).*Got"):
        Pruner(20, SCHEDULE, prune=5, policy=watching(lambda samples: {"mine": made}))


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])
def test_arrays_of_numbers_are_taken_as_they_are(kind):
    array = np.zeros(20, kind)
    assert SampleArrays(20, [watching(lambda samples: {"mine": array})]).finished["mine"] is array


@pytest.mark.parametrize("name", ["counts", "hits", "visits", "tally", "waiting", "without", "high", "mean_excess"])
@pytest.mark.parametrize("classes", [None, 10])
def test_a_name_that_is_taken_is_refused(name, classes):
    with pytest.raises(PrunedataError, match=f"Got '{name}', which is taken"):
        Pruner(20, SCHEDULE, prune=5, policy=watching(lambda samples: {name: np.zeros(samples)}), classes=classes)


@pytest.mark.parametrize("name", [3, "two words", "", "open-mine"])
def test_a_name_is_a_word(name):
    with pytest.raises(PrunedataError, match="Expected the name of an array to be a word"):
        SampleArrays(20, [watching(lambda samples: {name: np.zeros(samples)})])


def test_arrays_stand_as_the_epoch_found_them_and_within_it_as_its_losses_changed_them():
    def one():
        return SampleArrays(2, [watching(lambda n: {"mine": np.zeros(n, np.float32)})])

    def told(arrays):
        return {name: (array.dtype, array.tolist()) for name, array in arrays.items()}

    run, kind = one(), np.dtype(np.float32)
    opened = run.copies()
    run.add(opened, Batches(np.array([1, 1]), np.array([3.0, 4]), np.array([2]), np.array([2.5])), np.array([0, 2]))
    assert told(run.finished) == {"mine": (kind, [0, 0]), "mean_excess": (kind, [0, 0])}
    assert told(opened) == {"mine": (kind, [0, 13]), "mean_excess": (kind, [0, 2])}
    state = run.finished | {f"open-{name}": array for name, array in opened.items()}
    again = one()
    again.restore(state)
    assert told(again.finished) == told(run.finished)
    loaded = again.saved_open(state)
    assert told(loaded) == told(opened)
    for arrays in (loaded, again.finished):
        arrays["mine"][:] = 7
    assert (told(run.finished)["mine"], told(opened)["mine"]) == ((kind, [0, 0]), (kind, [0, 13]))
    run.finished = run.after(opened, np.array([1, 2], np.uint8), np.array([0, 2], np.uint8))
    assert told(run.finished) == {"mine": (kind, [0, 13]), "mean_excess": (kind, [0, 1])}


@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.floats(-1e3, 1e3, width=32)), max_size=30), max_size=6))
def test_the_mean_excess_is_that_of_all_visits(epochs):
    arrays, plain = SampleArrays(6, []), [[] for _ in range(6)]
    visits = np.zeros(6, np.uint32)
    for epoch in epochs:
        opened, visited = arrays.copies(), np.zeros(6, np.uint32)
        for first in range(0, len(epoch), 4):
            ids = np.array([sample for sample, _ in epoch[first : first + 4]])
            losses = np.array([loss for _, loss in epoch[first : first + 4]], np.float32)
            mean = losses.astype(np.float64).mean()
            np.add.at(visited, ids, 1)
            arrays.add(opened, Batches(ids, losses, np.array([ids.size]), np.array([mean])), visited)
            for sample, loss in zip(ids, losses, strict=True):
                plain[sample].append(loss - mean)
        visits += visited
        arrays.finished = arrays.after(opened, visits, visited)
    expected = [np.mean(one) if one else 0.0 for one in plain]
    assert arrays.finished["mean_excess"] == pytest.approx(expected, rel=1e-3, abs=1e-2)


def test_losses_of_any_size_leave_finite_means():
    arrays = SampleArrays(2, [])
    for size in (1e300, -1e300, 3e38):
        opened = arrays.copies()
        kind = np.float32 if abs(size) < 1e39 else np.float64
        losses = np.array([size, 0.0], kind)
        arrays.add(opened, Batches(np.arange(2), losses, np.array([2]), np.array([float(size) / 2])), np.ones(2, int))
        arrays.finished = arrays.after(opened, np.full(2, 9, np.uint8), np.ones(2, np.uint8))
        assert np.isfinite(arrays.finished["mean_excess"]).all()


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=5), st.booleans())
def test_an_update_names_a_sample_once_with_the_mean_of_its_batch_in_float64(batches, narrow):
    seen = []

    def change(arrays, ids, losses, means):
        seen.append((ids.tolist(), losses.tolist(), means.tolist()))
        assert losses.dtype == means.dtype == np.float64

    watcher = watching(lambda samples: {"mine": np.zeros(samples)}, change)
    run, ids, sizes = SampleArrays(4, [watcher]), np.concatenate(batches), np.array(list(map(len, batches)))
    losses, means = np.arange(ids.size, dtype=np.float32 if narrow else np.float64), 10.0 * np.arange(sizes.size)
    often = np.bincount(ids, minlength=4)
    run.add(run.copies(), Batches(ids, losses, sizes, means), often)
    assert len(seen) == often.max()  # no more rounds than there must be
    visits = [visit for told in seen for visit in zip(*told, strict=True)]
    assert all(len(set(told[0])) == len(told[0]) for told in seen)
    whole = list(zip(ids.tolist(), losses.tolist(), np.repeat(means, sizes).tolist(), strict=True))
    for x in range(4):
        assert [visit for visit in visits if visit[0] == x] == [visit for visit in whole if visit[0] == x]


def rebinds(arrays, ids, losses, means):
    arrays["mine"] = arrays["mine"] + 1


def adds(arrays, ids, losses, means):
    arrays["other"] = arrays["mine"]


@pytest.mark.parametrize("change", [rebinds, adds])
def test_an_update_that_puts_other_arrays_in_the_place_is_told(change):
    run = Pruner(20, SCHEDULE, prune=5, policy=watching(lambda samples: {"mine": np.zeros(samples)}, change))
    run.begin_epoch()
    run.observe(np.ones(20), np.arange(20))
    with pytest.raises(PrunedataError, match=r"Watching.update\(\) to change its arrays in place"):
        run.end_epoch()
