"""The loop as users write it: what they see of an epoch, how long the run is, and what they are told."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

from prunedata import Pruner, Schedule
from prunedata.errors import FinishedWarning, NeverPrunesWarning, NotInEpoch, PrunedataError, ScheduleError
from tests.common.strategies import pruner, schedules

SCHEDULE = Schedule(4, window=4, start=2, block=2, pruned_per_block=1)
IDS = np.arange(100)


def observe(run, epoch):
    run.observe(np.cos(np.flatnonzero(epoch.keep)), np.flatnonzero(epoch.keep))


def test_an_epoch_is_printed_on_one_line():
    run = Pruner(100_000, SCHEDULE, prune=0.25, seed=3)
    assert repr(run.begin_epoch()) == "Epoch(number=0, pruned=False, kept=100000 of 100000, seed=3)"
    run.observe(np.ones(60), np.arange(60))
    assert repr(run.begin_epoch()) == "Epoch(number=0, pruned=False, kept=100000 of 100000, remaining=99940, seed=3)"


def test_end_epoch_within_the_loop_ends_the_epoch_once():
    run = Pruner(100, SCHEDULE, prune=0.25)
    for epoch in run.epochs():
        observe(run, epoch)
        run.end_epoch()
    assert [record["number"] for record in run.history] == [0, 1, 2, 3]


def test_break_at_the_end_of_an_epoch_loses_nothing_of_it():
    run = Pruner(100, SCHEDULE, prune=0.25)
    for epoch in run.epochs():
        observe(run, epoch)
        if epoch.number == 1:
            break
    assert (run.next_epoch, len(run.history)) == (2, 2)
    for epoch in run.epochs():
        run.observe(np.ones(10), np.flatnonzero(epoch.keep)[:10])
        break
    assert (run.next_epoch, run.current.number) == (2, 2)  # not seen whole: it stays open
    for epoch in run.epochs():
        observe(run, epoch)
    assert run.visits.sum() == 100 * 4 - 25 + 10


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


@pytest.mark.parametrize(("prune", "number"), [("20%", 10_000), ("0.5 %", 250), ("12.5%", 6250)])
def test_a_percentage_can_be_said_plainly(prune, number):
    assert Pruner(50_000, SCHEDULE, prune=prune).prune == number


@pytest.mark.parametrize("prune", ["20", "%", "x%", "120%", "0%", "1/0%"])
def test_a_percentage_that_makes_no_sense_is_refused(prune):
    with pytest.raises(ScheduleError, match="Expected prune"):
        Pruner(50_000, SCHEDULE, prune=prune)


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


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        (Schedule(4, window=60, start=20, block=5, pruned_per_block=4), "let start be less than the epochs, 4"),
        (Schedule(9, window=60, start=7, block=5, pruned_per_block=4, anneal=3), "the epochs, 9 less the last 3"),
        (Schedule(60, window=10, start=10, block=5, pruned_per_block=4), "let start be less than the window"),
        (Schedule(60, window=10, start=2, block=5, pruned_per_block=0), "let pruned_per_block be at least 1"),
    ],
)
def test_a_schedule_that_never_prunes_says_which_number_is_to_blame(schedule, told):
    with pytest.warns(NeverPrunesWarning, match=told) as caught:
        Pruner(100, schedule, prune=0.25)
    assert caught[0].filename == __file__


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


class TestAPolicyThatFails:
    def failing(self):
        from dataclasses import dataclass

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

        return Failing()

    def test_the_run_goes_no_further_and_says_why(self):
        run = Pruner(100, SCHEDULE, prune=0.25, policy=self.failing(), store=MemoryStore())
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

    def test_a_finished_run_is_not_begun_again(self):
        run = Pruner(100, SCHEDULE, prune=0.25)
        for epoch in run.epochs():
            observe(run, epoch)
        with pytest.warns(FinishedWarning) as caught:
            list(run.epochs())
        assert caught[0].filename == __file__
