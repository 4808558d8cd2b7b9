"""A run that is given more epochs goes on as one that had them from the start, as far as the past allows."""

import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, Schedule
from prunedata.errors import ForeignStore, NeverPrunesWarning, PrunedataError
from prunedata.findings.inspection import advise_now, inspect
from prunedata.policies import DroppingCount, LossRanked, RunningLoss
from prunedata.store.run_store import read_run
from tests.common.programs import FEWER
from tests.common.strategies import policies, schedules
from tests.run.alike import known, records

pytestmark = pytest.mark.filterwarnings("ignore::prunedata.errors.UnweighedWarning")  # nothing is trained here
SAMPLES = 60
SHORT = Schedule(8, window=4, start=1, block=2, pruned_per_block=1)
LONG = replace(SHORT, epochs=13)


def start(schedule=SHORT, place=None, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeverPrunesWarning)
        return Pruner(SAMPLES, schedule, **{"prune": 0.3, "store": place, "resume": place is not None, **more})


def train(run, until=None, batches=None, turn=None):
    """Train up to an epoch, and so many batches of it; return the masks of all. A figure falls from ``turn`` on."""
    seen = {}
    last = run.schedule.epochs if until is None else until
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeverPrunesWarning)  # of advice
        while run.next_epoch < last + (batches is not None):
            epoch = run.begin_epoch()
            seen[epoch.number] = epoch.keep.tolist()
            stops = batches is not None and epoch.number == last
            for ids in list(epoch.batches(16))[: batches if stops else None]:
                run.observe(np.where(ids < 18, 3.0, np.abs(np.sin(ids * 12.9 + epoch.number * 7.3))), ids)
            if stops:
                break
            if turn is not None:
                run.validated(50 + min(epoch.number, turn) - 3 * max(0, epoch.number - turn))
            run.end_epoch()
    return seen


def outcome(run):
    return records(run), run.schedule, {name: array.tolist() for name, array in known(run).items()}


def from_its_store(run, schedule, place, **more):
    run.commit()
    return start(schedule, place, **more)


def from_a_checkpoint(run, schedule, place, **more):
    longer = start(schedule, **more)
    longer.load_state_dict(run.state_dict())
    return longer


AUTO = {"policy": "auto", "prune": 0.5}
WAYS = [from_its_store, from_a_checkpoint]
TUPLES = [
    (Schedule(8, (3, 5), 1, 2, 1, 2), Schedule(13, (3, 5, 4, 9), 1, 2, 1, 2)),
    (Schedule(8, (3, 60), 1, 2, 1), Schedule(13, (3, 10), 1, 2, 1)),
    (Schedule.from_milestones(8, [3], 1, 2, 1), Schedule.from_milestones(13, [3, 10], 1, 2, 1)),
]
LENGTHENED = [
    (SHORT, LONG),
    (replace(SHORT, window=5), replace(SHORT, window=5, epochs=13)),
    (replace(SHORT, reading="printed"), replace(LONG, reading="printed")),
    *TUPLES,
]


@pytest.mark.parametrize("stop", [(0, 1), (8, None)], ids=str)
@pytest.mark.parametrize("schedules", LENGTHENED, ids=lambda two: f"{two[0].window}-{two[0].reading}")
def test_it_ends_as_if_it_had_been_so_long_from_the_start(tmp_path, stop, schedules):
    short, long = schedules
    run, whole = start(short, tmp_path, classes=10), start(long, classes=10)
    masks = train(run, *stop)
    longer = from_its_store(run, long, tmp_path, classes=10)
    assert longer.next_epoch == stop[0]
    assert masks | train(longer) == train(whole)
    assert outcome(longer) == outcome(whole)
    assert Schedule.from_dict(inspect(tmp_path)["schedule"]) == long
    assert outcome(start(long, tmp_path, classes=10)) == outcome(whole)


POLICIES = policies() | st.sampled_from([RunningLoss(0.5), LossRanked()])


@FEWER
@given(schedules(max_epochs=7), st.integers(1, 9), POLICIES, st.integers(0, 7), st.booleans(), st.data())
def test_so_does_every_run(short, more, policy, stop, stored, data):
    short = replace(short, anneal=0)
    window = short.window
    if isinstance(window, tuple):
        window = (*window, *data.draw(st.lists(st.integers(1, 5), max_size=3)), short.epochs + more)
    long = replace(short, epochs=short.epochs + more, window=window)
    stop = min(stop, short.epochs)
    batches = None if stop == short.epochs else data.draw(st.none() | st.integers(0, 4))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run.zarr"
        run, whole = start(short, place, policy=policy), start(long, policy=policy)
        masks = train(run, stop, batches)
        longer = (from_its_store if stored else from_a_checkpoint)(run, long, place, policy=policy)
        masks |= train(longer)
    expected = train(whole)
    past = [number for number in range(short.epochs) if short.prunes(number) != long.prunes(number)]
    assert past == []
    assert masks == expected
    assert outcome(longer) == outcome(whole)


def test_the_store_says_so_before_the_first_epoch_is_done(tmp_path):
    train(start(SHORT, tmp_path), 5)
    start(LONG, tmp_path)
    found = inspect(tmp_path)
    assert Schedule.from_dict(found["schedule"]) == LONG
    with pytest.raises(ForeignStore, match="schedule"):
        start(SHORT, tmp_path)  # it is a run of 13 epochs now
    assert start(LONG, tmp_path).next_epoch == 5
    assert start(replace(LONG, epochs=20), tmp_path).schedule.epochs == 20


class TestRewindowed:
    """The new window goes on repeating."""

    @pytest.mark.parametrize("window", [2, 3, 50])
    @pytest.mark.parametrize("given", [(SHORT, LONG), TUPLES[0]], ids=["int", "tuple"])
    def test_as_one_that_was_so_long_when_it_got_its_window(self, tmp_path, given, window):
        short, long = given
        run, whole = start(short, tmp_path), start(long)
        for one in (run, whole):
            train(one, 5)
            one.rewindow(window)
        train(run, 7)
        longer = start(long, tmp_path)
        assert train(longer) == {number: keep for number, keep in train(whole).items() if number >= 7}
        assert [longer.schedule.resets(e) for e in range(13)] == [whole.schedule.resets(e) for e in range(13)]
        assert [longer.schedule.prunes(e) for e in range(13)] == [whole.schedule.prunes(e) for e in range(13)]
        assert outcome(start(long, tmp_path))[2] == outcome(whole)[2]


class TestAuto:
    """With policy="auto" the advice stands, if it has come; otherwise the longer run watches on."""

    SHORT, LONG = Schedule(60, 60, 20, 5, 4), Schedule(90, 60, 20, 5, 4)

    def test_before_advice_it_is_the_longer_run(self, tmp_path):
        run, whole = start(self.SHORT, tmp_path, **AUTO), start(self.LONG, **AUTO)
        train(run, 7, 2, turn=8)
        longer = from_its_store(run, self.LONG, tmp_path, **AUTO)
        train(longer, 20, turn=8)
        train(whole, 20, turn=8)
        assert longer.advice == whole.advice
        assert longer.advice.schedule.epochs == 90
        assert outcome(longer) == outcome(whole)

    @pytest.mark.parametrize("way", WAYS)
    def test_after_it_the_run_prunes_to_its_new_end(self, tmp_path, way):
        run = start(self.SHORT, tmp_path, **AUTO)
        train(run, 14, turn=8)
        longer = way(run, self.LONG, tmp_path, **AUTO)
        assert longer.advice == run.advice
        assert longer.advice.verdict == "prune"
        first = longer.advice.onset + 1
        assert longer.schedule.pruned_epochs == tuple(range(first, 90))
        assert longer.schedule.windows == ((0, 90),)
        train(longer)
        assert [record["pruned"] for record in longer.history] == [False] * first + [True] * (90 - first)

    @pytest.mark.parametrize(("stop", "first"), [(39, 60), (40, 40), (60, 40)])
    def test_what_began_late_goes_on_to_the_new_end_and_else_begins_by_that(self, tmp_path, stop, first):
        train(start(self.SHORT, tmp_path, **AUTO), stop)
        longer = start(self.LONG, tmp_path, **AUTO)
        train(longer)
        assert [record["pruned"] for record in longer.history] == [False] * first + [True] * (90 - first)


class TestAnnealing:
    """The last epochs anneal: with more epochs, they are later ones."""

    SHORT, LONG = (Schedule(epochs, 4, 1, 1, 1, anneal=3) for epochs in (8, 13))

    @pytest.mark.parametrize("stop", [(5, None), (3, 2)], ids=str)
    def test_before_it_has_begun_the_run_is_the_longer_one(self, tmp_path, stop):
        run, whole = start(self.SHORT, tmp_path), start(self.LONG)
        masks = train(run, *stop)
        longer = from_its_store(run, self.LONG, tmp_path)
        assert masks | train(longer) == train(whole)
        assert outcome(longer) == outcome(whole)

    @pytest.mark.parametrize("way", WAYS)
    def test_what_has_annealed_stays_and_the_new_end_anneals(self, tmp_path, way):
        run = start(self.SHORT, tmp_path)
        train(run)
        longer = way(run, self.LONG, tmp_path)
        train(longer)
        pruned = [record["number"] for record in longer.history if record["pruned"]]
        assert pruned == [1, 2, 3, 9]  # 5 to 7 annealed, 10 to 12 do; a window begins with 4, 8 and 12

    @pytest.mark.parametrize("way", WAYS)
    def test_an_epoch_that_anneals_is_ended_first(self, tmp_path, way):
        run = start(self.SHORT, tmp_path)
        train(run, 6, 2)
        with pytest.raises(PrunedataError, match=r"Expected epoch 6 to go on as it began.*schedule of 8 epochs"):
            way(run, self.LONG, tmp_path)
        assert inspect(tmp_path)["schedule"]["epochs"] == 8


class TestSteady:
    """``Schedule.steady`` chooses its start by the epochs: with more of them it is a later one."""

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("anneal", [0, 1, 0.2])
    @pytest.mark.parametrize("more", [{}, {"policy": "auto"}, {"leave_out": "nothing"}])
    def test_a_finished_run_is_lengthened_as_its_warning_says(self, tmp_path, way, anneal, more):
        run = start(Schedule.steady(6, anneal=anneal), tmp_path, **more)
        train(run)
        longer = way(run, Schedule.steady(12, anneal=anneal), tmp_path, **more)
        assert (longer.next_epoch, longer.schedule.epochs) == (6, 12)
        train(longer)
        pruned = [record["number"] for record in longer.history if record["pruned"]]
        last = {0: (6, 12), 1: (5, 11), 0.2: (4, 9)}[anneal]
        first = 4 if "policy" in more else 1
        assert pruned == ([] if "leave_out" in more else [*range(first, last[0]), *range(6, last[1])])
        if way is from_its_store:  # and once more
            again = start(Schedule.steady(24, anneal=anneal), tmp_path, **more)
            assert (again.next_epoch, again.schedule.epochs) == (12, 24)

    @pytest.mark.parametrize(("epochs", "batches", "first"), [(0, 1, 3), (1, None, 3), (1, 1, 1), (2, None, 1)])
    def test_it_begins_to_prune_where_the_longer_run_does_unless_it_has_begun(self, tmp_path, epochs, batches, first):
        run = start(Schedule.steady(6), tmp_path)
        train(run, epochs, batches)
        run.commit()
        start(Schedule.steady(18), tmp_path).commit()
        run = start(Schedule.steady(18), tmp_path)
        train(run)
        assert [record["number"] for record in run.history if record["pruned"]] == [*range(first, 18)]

    @pytest.mark.parametrize("turn", [3, 30])
    def test_with_auto_after_the_turn_and_before(self, tmp_path, turn):
        run = start(Schedule.steady(18), tmp_path, **AUTO)
        train(run, turn=turn)
        longer = start(Schedule.steady(24), tmp_path, **AUTO)
        assert (longer.schedule.epochs, longer.next_epoch) == (24, 18)
        train(longer, turn=turn)
        pruned = [record["number"] for record in longer.history if record["pruned"]]
        assert pruned == [*range(longer.advice.schedule.start, 24)]
        assert longer.advice.schedule.start == (12 if turn == 30 else longer.advice.onset + 1)

    @pytest.mark.parametrize(
        "other", [Schedule.steady(12, 4), Schedule.steady(12, anneal=1), Schedule.steady(5), Schedule(12, 12, 1, 2, 1)]
    )
    def test_another_one_is_refused_and_whose_is_which_is_said(self, tmp_path, other):
        train(start(Schedule.steady(6), tmp_path), 2)
        told = rf"stored run has .*'epochs': 6.*you gave .*'epochs': {other.epochs}.*nothing else .*to end it early"
        with pytest.raises(ForeignStore, match=told):
            start(other, tmp_path)


REFUSED = [
    *(
        (SHORT, replace(LONG, **change))
        for change in (
            {"epochs": 7},
            {"start": 2},
            {"window": 5},
            {"window": (4, 4, 5)},
            {"block": 3},
            {"attenuation": 2},
            {"reading": "printed"},
            {"anneal": 1},
        )
    ),
    *(
        (replace(SHORT, window=short), replace(LONG, window=long))
        for short, long in (((3, 5), (4, 4, 5)), ((3, 4, 1), (3, 5, 5)), ((3, 5), 4))
    ),
]
"""A longer run may have any windows to come, and nothing else that differs."""


@pytest.mark.parametrize(("short", "other"), REFUSED, ids=str)
@pytest.mark.parametrize("epochs", [0, 3])
def test_any_other_change_is_refused(tmp_path, short, other, epochs):
    run = start(short, tmp_path)
    train(run, epochs)
    state, before = run.state_dict(), (tmp_path / "zarr.json").read_bytes()
    with pytest.raises(ForeignStore, match="schedule"):
        start(other, tmp_path)
    assert (tmp_path / "zarr.json").read_bytes() == before
    with pytest.raises(ForeignStore, match="schedule"):
        start(other).load_state_dict(state)


@pytest.mark.parametrize("change", [{"seed": 3}, {"prune": 0.2}, {"policy": DroppingCount(1)}, {"batch_size": 4}])
def test_a_longer_schedule_allows_nothing_else(tmp_path, change):
    train(start(SHORT, tmp_path), 3)
    with pytest.raises(ForeignStore, match=next(iter(change))):
        start(LONG, tmp_path, **change)


@pytest.mark.parametrize("done", [1, 3, 6])
def test_a_run_that_ends_early_is_as_long_as_what_was_trained(done, tmp_path):
    """It is advised as one of so many epochs; and with more of them it goes on as one that never stopped."""
    for name, epochs in (("early", 12), ("so long", done)):
        run = Pruner(SAMPLES, epochs=epochs, store=tmp_path / name)
        train(run, done)
        run.shorten()
    early, meant = (read_run(tmp_path / name).state for name in ("early", "so long"))
    assert early.run == meant.run
    assert advise_now(early) == advise_now(meant)
    longer, whole = Pruner(SAMPLES, epochs=12, store=tmp_path / "early", resume=True), Pruner(SAMPLES, epochs=12)
    train(longer)
    train(whole)
    assert outcome(longer) == outcome(whole)


@pytest.mark.parametrize("options", [{"schedule": SHORT, "prune": 0.3}, {"epochs": 12}], ids=["schedule", "left out"])
def test_a_run_whose_length_has_decided_stays_as_long(options, tmp_path):
    run = Pruner(SAMPLES, store=tmp_path / "run", **options)
    train(run, run.schedule.epochs - 1)
    before = read_run(tmp_path / "run").generation
    run.shorten()
    assert read_run(tmp_path / "run").generation == before
    run.begin_epoch()
    run.shorten()
    assert read_run(tmp_path / "run").generation == before
