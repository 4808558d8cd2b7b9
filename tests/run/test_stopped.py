"""A run that was stopped anywhere, and went on in memory, from a state or from its store, equals one that was not."""

import copy
import io
import pickle
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata.policies import EasyPruning, LossRanked
from tests.common.marks import FEWER
from tests.common.strategies import SEEDS, feeds, policies, pruner, schedules

pytestmark = pytest.mark.filterwarnings("ignore::prunedata.errors.UnweighedWarning")  # nothing is trained here


def all_policies():
    """Also those that keep losses."""
    return policies() | st.builds(LossRanked, st.sampled_from([0.5, 0.8])) | st.builds(EasyPruning)


def by_pickle(state):
    return pickle.loads(pickle.dumps(state))


def by_torch(state):
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save({"pruner": state, "weights": torch.zeros(2)}, file)
    file.seek(0)
    return torch.load(file, weights_only=True)["pruner"]


def through_a_state(how):
    """Leave a run by its state, and go on from it in another."""

    def change(run, make):
        other = make()
        other.load_state_dict(how(run.state_dict()))
        return other

    return change


def through_its_store(run, make):
    run.commit()
    return make(resume=True)


class Stopped:
    """Walks a run to its end, in batches of one size; at each of `stops`, leaves the loop and comes back."""

    def __init__(self, make, feed, size, stops=(), through=None):
        self.run, self.log, self.masks, self.steps = make(), [], {}, 0
        self.feed, self.size, self.stops = feed, size, set(stops)
        while not self._walk():
            if through is not None:
                self.run = through(self.run, make)

    def _step(self):
        self.steps += 1
        return self.steps in self.stops

    def _walk(self):
        if self.run.next_epoch == self.run.schedule.epochs:
            return True
        for epoch in self.run.epochs():
            weights = None if epoch.weights is None else epoch.weights.tolist()
            self.masks.setdefault(epoch.number, []).append((epoch.keep.tolist(), weights))
            if self._step():
                return False
            for ids in epoch.batches(self.size):
                self.run.observe(self.feed.losses(ids, epoch.number), ids)
                self.log.append((epoch.number, ids.tolist()))
                if self._step():
                    return False
        return True

    def outcome(self):
        known = [array.tolist() for array in (self.run.counts, self.run.hits, self.run.visits)]
        told = [{k: v for k, v in r.items() if k not in ("seconds", "overhead")} for r in self.run.history]
        return self.log, known, {name: array.tobytes() for name, array in self.run.arrays.items()}, told


STOPS = (
    schedules(max_epochs=6),
    all_policies(),
    st.integers(1, 40),
    st.integers(1, 12),
    st.lists(st.integers(1, 80), max_size=6),
    SEEDS,
    st.data(),
)


@pytest.mark.parametrize("through", [None, *map(through_a_state, (by_pickle, by_torch, copy.deepcopy))])
@given(*STOPS)
def test_a_run_that_was_stopped_at_any_batch_equals_one_that_was_not(
    through, schedule, policy, samples, size, stops, seed, data
):
    stop_and_compare(through, None, schedule, policy, samples, size, stops, seed, data)


@FEWER
@given(*STOPS)
def test_so_it_does_from_its_store(schedule, policy, samples, size, stops, seed, data):
    with tempfile.TemporaryDirectory() as folder:
        stop_and_compare(through_its_store, folder, schedule, policy, samples, size, stops[:3], seed, data)


def stop_and_compare(through, folder, schedule, policy, samples, size, stops, seed, data):
    prune, feed = data.draw(st.integers(0, samples - 1)), data.draw(feeds(samples))
    options = {
        "batch_size": data.draw(st.none() | st.just(size)),
        "leave_out": data.draw(st.sampled_from(["delivery", "delivery", "nothing"])),
        "classes": data.draw(st.none() | st.just(2)),
    }

    def make(store=None, **more):
        return pruner(samples, schedule, prune=prune, policy=policy, seed=seed, store=store, **options, **more)

    def make_stored(**more):
        return make(None if folder is None else f"{folder}/run.zarr", **more)

    whole, stopped = Stopped(make, feed, size), Stopped(make_stored, feed, size, stops, through)
    assert stopped.outcome() == whole.outcome()
    for number, masks in stopped.masks.items():
        assert all(mask == whole.masks[number][0] for mask in masks)
    assert whole.masks.keys() >= stopped.masks.keys()
    assert not stops or min(stops) > whole.steps or stopped.steps >= whole.steps
