"""A run under every sequence of its verbs, beside a plain model of it."""

import pickle
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from zarr.storage import MemoryStore

from prunedata import Pruner, Schedule
from prunedata.errors import (
    FinishedWarning,
    LossError,
    NeverPrunesWarning,
    NotInEpoch,
    PrunedataError,
    ScheduleError,
    SkippedSamples,
)
from prunedata.policies import DroppingCount, Random
from tests.common.strategies import FORMS, LOSSES, SEEDS, PlainRun, in_form, policies, pruner, schedules


class Run(RuleBasedStateMachine):
    """Begin, observe, end, save and load, change the window, in any order."""

    @initialize(
        schedule=schedules(max_epochs=6), policy=policies(), samples=st.integers(1, 12), seed=SEEDS, data=st.data()
    )
    def set_out(self, schedule, policy, samples, seed, data):
        self.samples, prune = samples, data.draw(st.integers(0, samples - 1))
        self.make = lambda: pruner(samples, schedule, prune=prune, policy=policy, seed=seed)
        self.run = self.make()
        self.model = PlainRun(samples, schedule, policy, samples - prune, seed)
        self.restored = False

    def observed(self):
        return self.model.open and not self.restored

    def _observe(self, ids, losses, form):
        given_ids, given_losses, meant = in_form(ids, losses, form)
        self.run.observe(given_losses, given_ids)
        self.model.observe(ids, meant)

    @rule()
    def begin(self):
        if self.model.number == self.model.schedule.epochs:
            with pytest.raises(NotInEpoch, match="all are done"):
                self.run.begin_epoch()
            return
        self.model.begin()
        epoch, self.restored = self.run.begin_epoch(), False
        assert epoch.number == self.model.number
        assert epoch.pruned == self.model.schedule.prunes(epoch.number)
        assert epoch.keep.tolist() == self.model.keep
        assert np.flatnonzero(epoch.remaining).tolist() == self.model.missing()
        assert sorted(x for ids in epoch.order() for x in ids.tolist()) == self.model.missing()

    @precondition(observed)
    @rule(size=st.integers(1, 8), form=st.sampled_from(FORMS), data=st.data())
    def observe(self, size, form, data):
        ids = data.draw(st.lists(st.integers(0, self.samples - 1), min_size=size, max_size=size))
        self._observe(ids, data.draw(st.lists(LOSSES, min_size=size, max_size=size)), form)

    @precondition(observed)
    @rule(form=st.sampled_from(FORMS), loss=LOSSES, spread=st.sampled_from([0.0, 0.1, 1.0]))
    def observe_the_rest(self, form, loss, spread):
        rest = self.model.missing()
        if rest:
            self._observe(rest, [loss + spread * (x % 3) for x in rest], form)

    @precondition(lambda self: not self.observed())
    @rule()
    def observe_out_of_place(self):
        with pytest.raises(NotInEpoch):
            self.run.observe([1.0], [0])

    @rule()
    def end(self):
        if not self.model.open:
            with pytest.raises(NotInEpoch):
                self.run.end_epoch()
            return
        missing = len(self.model.missing())
        if missing and (self.run.policy.needs_losses or self.model.new_visits):
            with pytest.raises(SkippedSamples, match=f"Got {missing} that were not"):
                self.run.end_epoch()
            return
        self.run.end_epoch()
        self.model.end()
        self.restored = False

    @rule(anew=st.booleans())
    def save_and_load(self, anew):
        state = pickle.loads(pickle.dumps(self.run.state_dict()))
        if anew:
            self.run = self.make()
        self.run.load_state_dict(state)
        self.restored = self.model.open

    @rule(window=st.integers(1, 7))
    def rewindow(self, window):
        at_the_end = self.model.number + self.model.open == self.model.schedule.epochs
        if at_the_end or self.model.schedule.reading == "printed":
            with pytest.raises(ScheduleError):
                self.run.rewindow(window)
        else:
            self.run.rewindow(window)
            self.model.rewindow(window)

    @rule()
    def compare(self):
        assert self.run.counts.tolist() == self.model.counts_now()
        assert self.run.hits.tolist() == self.model.hits_now()
        assert self.run.visits.tolist() == self.model.visits_now()
        assert self.run.next_epoch == self.model.number == len(self.run.history)
        assert self.run.schedule == self.model.schedule

    @rule()
    def advance(self):
        """What a loop over epochs() does: end what is complete, then begin."""
        if self.model.open and not self.model.missing():
            self.model.end()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FinishedWarning)
            epoch = next(self.run.epochs(), None)
        self.restored = False
        assert (epoch is None) == (self.model.number == self.model.schedule.epochs)
        if epoch is not None:
            self.model.begin()
            assert (epoch.number, epoch.keep.tolist()) == (self.model.number, self.model.keep)

    def teardown(self):
        if hasattr(self, "run"):
            self.compare()


TestRun = Run.TestCase


# The loop as users write it: what they see of an epoch, how long the run is, and what they are told.


SCHEDULE = Schedule(4, window=4, start=2, block=2, pruned_per_block=1)
IDS = np.arange(100)


def observe(run, epoch):
    run.observe(np.cos(np.flatnonzero(epoch.keep)), np.flatnonzero(epoch.keep))


@given(schedules(), st.integers(1, 40), st.integers(1, 50), st.booleans(), st.data())
def test_the_batches_of_the_whole_run_are_known_before_it_begins(schedule, samples, size, drop_last, data):
    run = pruner(samples, schedule, prune=data.draw(st.integers(0, samples - 1)))
    told = run.total_batches(size, drop_last=drop_last)
    trained = 0
    for epoch in run.epochs():
        trained += len(list(epoch.batches(size, drop_last=drop_last)))
        observe(run, epoch)
    assert told == trained == run.total_batches(size, drop_last=drop_last)


def test_the_batch_size_of_the_run_is_the_default():
    run = Pruner(100, SCHEDULE, prune=0.25, batch_size=32)
    assert run.total_batches() == 4 + 4 + 3 + 4
    with pytest.raises(PrunedataError, match=r"Expected batch_size, here or in the Pruner. Got neither"):
        Pruner(100, SCHEDULE, prune=0.25).total_batches()


@pytest.mark.parametrize(
    ("samples", "prune", "asks"),
    [
        *((1000, 20, True), (1000, np.int64(20), True), (50_000, 99, True), (50_000, 1, True)),
        *((60, 20, False), (400, 19, False), (1000, 50, False), (50_000, 100, False), (1000, 0.02, False)),
    ],
)
def test_an_integer_that_reads_as_a_percentage_is_asked_about(samples, prune, asks):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = Pruner(samples, SCHEDULE, prune=prune)
    assert [one.category for one in caught] == [NeverPrunesWarning] * asks
    assert run.prune == (prune if prune >= 1 else 20)


@pytest.mark.parametrize("samples", [np.int64(3), np.uint8(3), np.array(3)])
def test_integers_of_any_kind_can_be_skipped(samples):
    run = Pruner(100, SCHEDULE, prune=0.25)
    run.begin_epoch()
    run.observe(np.ones(97), IDS[3:])
    run.skip(samples)
    state = run.state_dict()
    run.end_epoch()
    other = Pruner(100, SCHEDULE, prune=0.25)
    other.load_state_dict(state)
    assert next(other.epochs()).number == 1


@pytest.mark.parametrize("samples", [1.0, np.float64(2), "3", -1, float("nan"), None, True, np.bool_(True)])
def test_nothing_else_can_be(samples):
    run = Pruner(100, SCHEDULE, prune=0.25)
    run.begin_epoch()
    with pytest.raises(PrunedataError, match="Expected the samples to skip to be"):
        run.skip(samples)


@dataclass(frozen=True)
class Failing:
    tolerance = 0.0
    needs_losses = True

    def arrays(self, samples):
        return {"mine": np.zeros(samples)}

    def update(self, arrays, ids, losses, means):
        arrays["mine"][ids[:3]] = 1
        raise ZeroDivisionError("mine")

    def scores(self, known):
        return known.arrays["mine"]


def test_a_run_whose_policy_fails_goes_no_further_and_says_why():
    run = Pruner(100, SCHEDULE, prune=0.25, policy=Failing(), store=MemoryStore())
    before = run.state_dict()
    run.begin_epoch()
    run.observe(np.ones(100), IDS)
    with pytest.raises(ZeroDivisionError):
        run.end_epoch()
    for verb in (run.end_epoch, run.commit, run.state_dict, run.begin_epoch):
        with pytest.raises(NotInEpoch, match=r"Got one whose policy raised an error.* last commit"):
            verb()
    run.load_state_dict(before)
    assert run.begin_epoch().number == 0


# What a run is where little is said: the schedule, the policy, the number of samples; and who knows a batch's ids.


def test_epochs_alone_are_a_run_that_decides_by_itself():
    alone, spelt = Pruner(40, epochs=6), Pruner(40, Schedule.steady(6), policy="auto")
    assert alone.standing() == spelt.standing()


def test_a_schedule_alone_is_the_papers():
    schedule = Schedule(6, 6, 1, 2, 1)
    assert Pruner(40, schedule, prune=5).standing() == Pruner(40, schedule, prune=5, policy=DroppingCount()).standing()


def test_epochs_go_with_a_policy_of_ones_own():
    run = Pruner(40, epochs=6, policy=Random(), prune=0.25)
    assert (run.schedule, run.prune, run.policy) == (Schedule.steady(6), 10, Random())


@pytest.mark.parametrize("given", [{}, {"schedule": Schedule.steady(6), "epochs": 6}])
def test_when_to_prune_is_said_once(given):
    with pytest.raises(ScheduleError, match="Expected epochs"):
        Pruner(40, **given)


def test_samples_may_be_the_data_set():
    assert Pruner(list(range(40)), epochs=6).samples == 40
    assert Pruner(np.zeros((40, 2)), epochs=6).samples == 40
    assert Pruner(np.array(40), epochs=6).samples == 40  # a number


@pytest.mark.parametrize("given", ["40", "data.csv", b"40", {"train": [1, 2], "test": [3]}, {}], ids=repr)
def test_a_length_that_is_no_number_of_samples_is_refused(given):
    with pytest.raises(PrunedataError, match=r"Expected samples as a number, or a data set .* Got "):
        Pruner(given, epochs=6)
    assert Pruner(dict.fromkeys(range(40), "a row"), epochs=6).samples == 40  # one that a DataLoader takes


def test_a_run_that_knows_no_samples_says_so():
    run = Pruner(epochs=6)
    for use in (
        run.begin_epoch, lambda: run.samples, lambda: run.history, run.commit,
        lambda: run.observe([1.0], [0]), lambda: next(run.epochs()),
    ):  # fmt: skip
        with pytest.raises(PrunedataError, match="has not begun, as its samples"):
            use()
    with pytest.raises(AttributeError, match="no attribute 'sample'"):
        run.sample  # noqa: B018


def test_what_is_wrapped_says_how_many_samples_there_are(tmp_path):
    run = Pruner(epochs=3, policy=Random(), prune=4, store=tmp_path / "run.zarr")
    stream = run.wrap(list(range(16)), id=int)
    assert run.samples == 16
    for epoch in run.epochs():
        seen = [number for number, _ in stream]
        assert len(seen) == epoch.kept
        run.observe(np.ones(len(seen)), seen)
    assert Pruner(16, epochs=3, policy=Random(), prune=4, store=tmp_path / "run.zarr", resume=True).next_epoch == 3


def test_what_has_no_length_needs_the_number():
    with pytest.raises(PrunedataError, match=r"which the generator does not know\. Got none: pass it"):
        Pruner(epochs=3).wrap((number for number in range(3)), id=int)


def test_ids_are_needed_where_no_loader_knows_them():
    run = Pruner(8, epochs=2)
    run.begin_epoch()
    with pytest.raises(LossError, match=r"Expected ids with the losses\. Got none, and no wrapped loader"):
        run.observe(np.ones(8))


def test_a_warning_is_of_the_line_that_called():
    with pytest.warns(NeverPrunesWarning) as told:
        Pruner(5000, Schedule(4, 4, 1, 2, 1), prune=20)
    assert told[0].filename == __file__
    with pytest.warns(NeverPrunesWarning) as told:
        Pruner(epochs=1, policy=Random(), prune=0).wrap([1, 2], id=int)
    assert told[0].filename == __file__
