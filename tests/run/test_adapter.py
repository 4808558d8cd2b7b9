"""Adapters take part in a run: attached once, called in order, and merged on copies."""

from itertools import count

import numpy as np
import pytest

from prunedata import Adapter, Delivery, Pruner, Schedule
from prunedata.errors import PrunedataError, SkippedSamples
from prunedata.policies import LossRanked
from prunedata.run.group import Group
from prunedata.store.run_store import read_run

SCHEDULE = Schedule(4, window=4, start=1, block=1, pruned_per_block=1)
IDS = np.arange(20)


def make(**options):
    return Pruner(20, SCHEDULE, prune=0.25, **options)


class Recorder(Adapter):
    """Writes down what it is called for."""

    def __init__(self, name, calls, key=None):
        self.name, self.calls, self.key = name, calls, key

    def begin_epoch(self, epoch):
        self.calls.append((self.name, "begin", epoch.number))


class Logger(Adapter):
    """Looks at the run when an epoch has ended."""

    def __init__(self, run, place):
        self.run, self.place, self.seen = run, place, []

    def epoch_ended(self, record):
        assert record is self.run.history[-1]
        stored = read_run(self.place).state
        self.seen.append((record["number"], self.run.next_epoch, len(stored.history), int(self.run.visits.sum())))
        if record["number"] == 1:
            raise RuntimeError("disk full")


def test_a_logger_is_told_when_an_epoch_has_ended_and_is_stored(tmp_path):
    run = make(store=tmp_path / "run.zarr")
    logger = run.attach(Logger(run, tmp_path / "run.zarr"))
    for _ in range(4):
        epoch = run.begin_epoch()
        run.observe(np.arange(epoch.kept, dtype=float), np.flatnonzero(epoch.keep))
        if epoch.number == 1:
            with pytest.raises(RuntimeError, match="disk full"):
                run.end_epoch()
        else:
            run.end_epoch()
    assert logger.seen == [(0, 1, 1, 20), (1, 2, 2, 35), (2, 3, 3, 50), (3, 4, 4, 65)]


def test_one_with_a_key_is_attached_once():
    calls = []
    run = make()
    first = run.attach(Recorder("first", calls, key="streams"))
    assert run.attach(Recorder("second", calls, key="streams")) is first
    assert run.attach(first) is first
    other = run.attach(Recorder("other", calls))
    assert run.attach(other) is other
    assert run.adapters == (first, other)
    run.begin_epoch()
    assert [call for call in calls if call[1] == "begin"] == [("first", "begin", 0), ("other", "begin", 0)]


def test_one_attached_within_an_epoch_is_told_of_it_at_once():
    calls = []
    run = make()
    run.begin_epoch()
    run.attach(Recorder("late", calls))
    assert calls == [("late", "begin", 0)]


@pytest.mark.parametrize("what", [None, "loader", Recorder])
def test_what_is_no_adapter_is_refused(what):
    with pytest.raises(PrunedataError, match=r"Expected an adapter, a subclass of prunedata.Adapter. Got"):
        make().attach(what)


def test_one_key_is_for_one_class():
    class Other(Adapter):
        key = "streams"

    run = make()
    run.attach(Recorder("first", [], key="streams"))
    with pytest.raises(PrunedataError, match=r"adapters of one class for the key 'streams'. Got Recorder and Other"):
        run.attach(Other())


def test_deliveries_add_up_and_those_of_other_epochs_are_ignored():
    run = make()
    loaders = [run.attach(Adapter()) for _ in range(3)]
    run.begin_epoch()
    loaders[0].delivery = Delivery(0, delivered=8, left_out=2)
    loaders[1].delivery = Delivery(0, delivered=6)
    loaders[2].delivery = Delivery(7, delivered=100, left_out=100)
    run.observe(np.ones(14), IDS[:14])
    with pytest.raises(SkippedSamples, match=r"all 18 kept .* Got 4 that were not.* did not deliver 4 of them"):
        run.end_epoch()
    loaders[2].delivery = Delivery(0, left_out=4)
    run.end_epoch()
    assert run.history[0]["observed"] == 14


def test_a_run_is_saved_whose_adapters_count_in_numbers_of_numpy():
    run, again = make(), make()
    loader = run.attach(Adapter())
    run.begin_epoch()
    loader.delivery = Delivery(0, delivered=np.int64(18), left_out=np.int64(2))
    run.observe(np.ones(18), IDS[:18])
    again.load_state_dict(run.state_dict())
    assert again.state_dict()["state"]["skipped"] == 2
    run.end_epoch()


class OtherRank(Group):
    """Merges with a process that observed, and lost on, the second half of the samples."""

    processes = 2

    def merge(self, tally, arrays):
        tally.add(IDS[10:], np.ones(10, np.bool_))
        arrays["loss"][10:] += 5


def test_an_epoch_that_could_not_end_is_not_merged_twice():
    run = make(policy=LossRanked())
    run.join(OtherRank())
    run.begin_epoch()
    run.observe(np.zeros(9), IDS[:9])
    run.observe(np.zeros(10), IDS[10:])
    with pytest.raises(SkippedSamples, match="Got 1 that were not"):
        run.end_epoch()
    run.observe(np.zeros(1), IDS[9:10])
    run.end_epoch()
    assert run.visits.tolist() == [1] * 10 + [2] * 10
    assert run.arrays["loss"].tolist() == [0] * 10 + [5] * 10


def test_overhead_within_overhead_counts_once(monkeypatch):
    ticks = count(1.0)
    monkeypatch.setattr("prunedata.run.meter.perf_counter", lambda: next(ticks))
    run = make()
    run.begin_epoch()
    earlier, began = run.overhead.elapsed, next(ticks)
    with run.overhead:
        before = run.overhead.elapsed
        with run.overhead:
            run.observe(np.ones(20), IDS)
        run.state_dict()
        within = run.overhead.elapsed
    assert earlier < before < within < run.overhead.elapsed
    assert run.overhead.elapsed - earlier < next(ticks) - began


def test_what_an_adapter_adds_by_itself_counts_once_within_a_with():
    run = make()
    run.begin_epoch()
    with run.overhead:
        run.overhead.seconds += 1000.0
    assert run.overhead.elapsed < 1000.0


def test_ids_that_come_twice_are_named_as_the_cause():
    run = make()
    run.begin_epoch()
    run.observe(np.ones(10), IDS[:10])
    run.observe(np.ones(10), IDS[:10])
    with pytest.raises(SkippedSamples, match=r"10 visits were of samples that had been observed before.* same ids"):
        run.end_epoch()
