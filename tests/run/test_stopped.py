"""Loops that are left, and runs that were stopped anywhere: they go on as if they had not been."""

import gc
import io
import tempfile
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, Schedule
from prunedata.errors import SkippedSamples
from prunedata.findings.inspection import inspect
from prunedata.policies import DroppingCount, EasyPruning, LossRanked, Random
from tests.common.programs import FEWER, run_python
from tests.common.strategies import SEEDS, feeds, policies, pruner, schedules
from tests.run.alike import known, records

# A loop over epochs that is left by break or an error loses no epoch that was seen whole.


SAMPLES = 40
SCHEDULE = Schedule(6, window=3, start=1, block=2, pruned_per_block=1)


def start(place=None, **more):
    return Pruner(SAMPLES, SCHEDULE, prune=10, store=place, resume=place is not None, **more)


def observe(run, epoch, batches=None):
    for ids in list(epoch.batches(8))[:batches]:
        run.observe(np.abs(np.sin(ids * 12.9 + epoch.number * 7.3)), ids)


def finish(run):
    for epoch in run.epochs():
        observe(run, epoch)
    return run.counts.tolist(), run.visits.tolist(), [record["kept"] for record in run.history]


def test_an_epoch_that_was_seen_whole_is_done_and_a_commit_stores_it(tmp_path):
    run = start(tmp_path)
    for epoch in run.epochs():
        observe(run, epoch)
        if epoch.number == 2:
            break
    assert run.next_epoch == len(run.history) == 3
    assert inspect(tmp_path)["epoch"] == 2  # from within, a loop left by an error looks the same
    run.commit()
    assert (inspect(tmp_path)["epoch"], inspect(tmp_path)["open"]) == (3, False)
    assert finish(run) == finish(start())


def test_a_loop_that_skips_batches_of_a_resumed_epoch_is_told_that_they_do_not_come():
    run, again = start(), start()
    observe(run, run.begin_epoch(), batches=2)
    again.load_state_dict(run.state_dict())
    for ids in list(again.begin_epoch().batches(8))[2:]:
        again.observe(np.ones(8), ids)
    with pytest.raises(SkippedSamples, match=r"Got 16 that were not\. As the epoch was resumed, .*: skip no batches"):
        again.end_epoch()


@pytest.mark.parametrize(
    ("means", "is_new"),
    [
        ([2.1, 1.5, 1.2, 2.0], True),  # by a model that knows nothing yet
        ([2.1, 1.5, 0.3, 1.4], False),  # the third left samples out
        ([2.1, 2.0, 2.05, 2.1], False),  # nothing was learned before either
        ([2.1, 2.0], False),
    ],
)
def test_a_resumed_run_tells_losses_as_high_as_at_its_beginning(tmp_path, means, is_new):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for stop in (len(means) - 1, len(means)):
            run = Pruner(4, epochs=6, store=tmp_path, resume=True)
            while run.next_epoch < stop:
                run.begin_epoch()
                run.observe(np.full(4, means[run.next_epoch]), np.arange(4))
                run.end_epoch()
    assert ["was the model loaded that belongs to this epoch?" in str(one.message) for one in seen] == [True] * is_new


@pytest.mark.parametrize("policy", [Random(), DroppingCount()])
def test_one_that_nothing_was_seen_of_stays_open(policy):
    run = start(policy=policy)
    for _ in run.epochs():
        break
    assert (run.next_epoch, run.history, run.current.number) == (0, [], 0)


def test_an_error_before_the_model_is_saved_leaves_the_store_where_the_model_is(tmp_path):
    """Else the next start would look for a model that was never saved."""
    run = start(tmp_path)

    def loop():
        for epoch in run.epochs():
            observe(run, epoch)
            if epoch.number == 1:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()
    gc.collect()
    assert inspect(tmp_path)["epoch"] == 1
    assert finish(run) == finish(start())
    assert inspect(tmp_path)["epoch"] == 6


def test_a_loop_that_is_forgotten_ends_no_later_epoch():
    run = start()
    first = run.epochs()
    observe(run, next(first))
    for epoch in run.epochs():
        observe(run, epoch, None if epoch.number == 0 else 1)
        if epoch.number == 1:
            break
    assert run.next_epoch == 1
    first.close()
    assert run.next_epoch == 1
    assert finish(run) == finish(start())


def test_an_epoch_that_was_ended_by_hand_is_not_ended_twice(tmp_path):
    run = start(tmp_path)
    for epoch in run.epochs():
        observe(run, epoch)
        run.end_epoch()
        break
    assert run.next_epoch == inspect(tmp_path)["epoch"] == 1


def test_what_cannot_be_ended_when_a_loop_is_left_is_told_when_it_goes_on():
    """Python would only print that it ignored the error."""
    run = start()
    left = run.epochs()
    observe(run, next(left), batches=4)
    run.observe(np.full(8, np.nan), np.arange(32, 40))  # waits: of a batch in the middle nothing is checked at once
    left.close()
    assert run.next_epoch == 0
    with pytest.raises(SkippedSamples, match="Got 8 that were not"):
        run.end_epoch()


LEFT_AT_THE_END = """
import numpy as np
from prunedata import Pruner, Schedule

run = Pruner(8, Schedule(4, 4, 1, 1, 1), prune=2, leave_out="nothing")
epochs = run.epochs()
ids, = next(epochs).batches(8)
run.observe(np.ones(8), ids)
print("end")
"""


def test_a_program_that_ends_within_the_loop_ends_quietly(tmp_path):
    done = run_python(LEFT_AT_THE_END, cwd=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)


# A run that was stopped anywhere, and went on in memory, from a state or from its store, equals one that was not.


pytestmark = [
    pytest.mark.filterwarnings("ignore::prunedata.errors.UnweighedWarning"),  # nothing is trained here
]


def all_policies():
    """Also those that keep losses."""
    return policies() | st.builds(LossRanked, st.sampled_from([0.5, 0.8])) | st.builds(EasyPruning)


def through_a_state(run, make):
    """Leave a run by its state, which PyTorch saves and loads, and go on from it in another."""
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save({"pruner": run.state_dict(), "weights": torch.zeros(2)}, file)
    file.seek(0)
    other = make()
    other.load_state_dict(torch.load(file, weights_only=True)["pruner"])
    return other


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
        return self.log, records(self.run), {name: array.tobytes() for name, array in known(self.run).items()}


STOPS = (
    schedules(max_epochs=6),
    all_policies(),
    st.integers(1, 40),
    st.integers(1, 12),
    st.lists(st.integers(1, 80), max_size=6),
    SEEDS,
    st.data(),
)


@pytest.mark.parametrize("through", [None, through_a_state])
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
        "leave_out": data.draw(st.sampled_from(["delivery", "delivery", "weight", "nothing"])),
        "classes": data.draw(st.none() | st.just(2)),
        "without": range(data.draw(st.integers(0, min(3, samples - prune - 1)))),
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
