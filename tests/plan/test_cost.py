"""What a schedule costs and saves, by walking through its epochs, and what a run has saved by its records."""

import json
import math
from dataclasses import asdict
from decimal import Decimal
from fractions import Fraction
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, Schedule
from prunedata.errors import ScheduleError
from prunedata.findings.inspection import inspect
from prunedata.plan.cost import CostModel, count_kept, count_pruned
from prunedata.plan.propose import propose
from prunedata.plan.savings import savings, seconds_of_whole_epoch
from tests.common.strategies import pruner, schedules

CIFAR = CostModel(50_000, 128, 0.016)


@st.composite
def cases(draw):
    """A schedule of either reading, a cost model with an overhead, a number of samples to prune."""
    block = draw(st.integers(1, 8))
    schedule = Schedule(
        draw(st.integers(1, 60)),
        draw(st.integers(1, 70)),
        draw(st.integers(1, 25)),
        block,
        draw(st.integers(0, block)),
        draw(st.sampled_from([1.0, 1.5, 2.0])),
        draw(st.sampled_from(["aligned", "printed"])),
    )
    samples = draw(st.integers(1, 300))
    cost = CostModel(samples, draw(st.integers(1, 320)), draw(st.floats(1e-4, 2.0)), draw(st.floats(0.0, 1.0)))
    return schedule, cost, draw(st.integers(0, samples - 1))


def walk(schedule, cost, prune):
    """Go through every epoch and every batch of it: (batches, visits, seconds) of the pruned run."""
    batches, visits, seconds = 0, 0, 0.0
    for epoch in range(schedule.epochs):
        left = cost.samples - (prune if schedule.prunes(epoch) else 0)
        while left > 0:
            step = min(left, cost.batch_size)
            left -= step
            visits += step
            batches += 1
            seconds += cost.batch_time
        seconds += cost.overhead
    return batches, visits, seconds


@given(cases())
def test_prediction_equals_walking_through_epochs_and_batches(case):
    schedule, cost, prune = case
    batches, visits, seconds = walk(schedule, cost, prune)
    bare = CostModel(cost.samples, cost.batch_size, cost.batch_time)
    all_batches, all_visits, all_seconds = walk(schedule, bare, 0)
    found = cost.predict(schedule, prune)
    assert (found.regular_batches, found.pruned_batches) == (all_batches, batches)
    assert found.regular_seconds == pytest.approx(all_seconds)
    assert found.pruned_seconds == pytest.approx(seconds)
    assert found.saved_seconds == pytest.approx(all_seconds - seconds, abs=1e-9 * (all_seconds + seconds))
    assert found.saved_percent == pytest.approx(100 * (1 - seconds / all_seconds), abs=1e-6)
    assert found.visits_saved_percent == pytest.approx(100 * (1 - visits / all_visits))
    assert found.pruned_epochs == sum(map(schedule.prunes, range(schedule.epochs)))
    assert found.pruned_epochs_printed == schedule.pruned_epochs_printed


@given(cases())
def test_formulas_are_as_printed(case):
    schedule, cost, prune = case
    n, n_prune = schedule.epochs, len(schedule.pruned_epochs)
    b, b_less = math.ceil(cost.samples / cost.batch_size), math.ceil((cost.samples - prune) / cost.batch_size)
    T, t0 = cost.batch_time, cost.overhead
    t_regular = sum(T * b for _ in range(n))
    b_printed = (1 / n) * (sum(T for _ in range(n_prune)) + sum(T for _ in range(n - n_prune)))
    b_meant = (1 / n) * (sum(b_less for _ in range(n_prune)) + sum(b for _ in range(n - n_prune)))
    t_prune = sum(T * b_meant for _ in range(n)) + sum(t0 for _ in range(n_prune))
    near = 1e-9 * (t_regular + n * t0)
    assert cost.formula_2(schedule) == pytest.approx(t_regular)
    assert cost.formula_5(schedule) == pytest.approx(b_printed) == pytest.approx(T)
    assert cost.formula_5_meant(schedule, prune) == pytest.approx(b_meant)
    assert cost.formula_6(schedule, prune) == pytest.approx(t_prune)
    assert cost.formula_7(schedule, prune) == pytest.approx(t_regular - t_prune, abs=near)
    exact = cost.predict(schedule, prune)
    watched_unpruned = (n - n_prune) * t0
    assert exact.pruned_seconds == pytest.approx(cost.formula_6(schedule, prune) + watched_unpruned)
    assert exact.saved_seconds == pytest.approx(cost.formula_7(schedule, prune) - watched_unpruned, abs=near)


def test_the_papers_savings():
    found = CIFAR.predict(Schedule(200, 60, 20, 5, 4, 2, "printed"), 10_000)
    assert (found.pruned_epochs, found.pruned_epochs_printed) == (142, 96)
    assert (found.regular_batches, found.pruned_batches) == (78_200, 67_124)
    assert round(found.saved_percent, 2) == 14.16
    assert found.visits_saved_percent == pytest.approx(14.2)
    assert CIFAR.predict(Schedule(200, 60, 20, 5, 4, 2, "printed"), 0.2) == found


def test_the_papers_other_saving_lies_between_the_readings():
    # 14.36 % comes from the tests of the print with the start divided once a window, as far as 0.
    pruned = 0
    for number in range(1, 201):
        start = (5, 2, 1, 0)[number // 60]
        pruned += number % 60 >= start and number % 4 < 3
    assert pruned == 144
    assert round(100 * pruned * (391 - 313) / (200 * 391), 2) == 14.36
    savings = [
        round(CIFAR.predict(Schedule(200, 60, 5, 4, 3, 2, reading), 10_000).saved_percent, 2)
        for reading in ("aligned", "printed")
    ]
    assert savings == [14.56, 14.46]


def test_a_saving_is_negative_where_watching_costs_more():
    found = CostModel(100, 10, 0.001, 1.0).predict(Schedule(10, 10, 5, 5, 4), 10)
    assert found.saved_seconds < 0
    assert found.saved_percent == pytest.approx(100 * (4 * 0.001 - 10) / (10 * 10 * 0.001))


def test_a_prediction_goes_through_json():
    found = asdict(CIFAR.predict(Schedule.from_milestones(200, (60, 120), 20, 5, 4), 0.2))
    assert json.loads(json.dumps(found)) == found
    assert found["pruned_epochs_printed"] is None


def test_measured_beside_predicted():
    schedule = Schedule(200, 60, 20, 5, 4, 2, "printed")
    predicted = CIFAR.predict(schedule, 0.2).saved_percent
    found = CIFAR.measured(1000.0, 870.0, schedule, 0.2)
    assert (found.predicted_percent, found.measured_percent) == (predicted, pytest.approx(13.0))
    assert found.ratio == pytest.approx(13.0 / predicted)
    assert CIFAR.measured(1000.0, 990.0, schedule, 0).ratio is None
    assert CIFAR.measured(1000.0, 1010.0, schedule, 0.2).measured_percent == pytest.approx(-1.0)
    assert set(asdict(found)) == {"predicted_percent", "measured_percent", "ratio"}
    assert CIFAR.measured(0.5, 0.25, schedule, 0.2).measured_percent == pytest.approx(50.0)
    with pytest.raises(ScheduleError, match="Expected regular_seconds to be a finite number above 0"):
        CIFAR.measured(0.0, 1.0, schedule, 0.2)
    with pytest.raises(ScheduleError, match="Expected pruned_seconds to be a finite number of at least 0"):
        CIFAR.measured(1000.0, -1.0, schedule, 0.2)


@given(st.integers(1, 10**7), st.integers(1, 9999), st.sampled_from(["", " "]))
def test_a_percentage_is_the_fraction_that_it_says(samples, hundredths, space):
    written = f"{hundredths // 100}.{hundredths % 100:02d}{space}%"
    assert count_pruned(samples, written) == samples * hundredths // 10_000


@given(st.integers(1, 10**7), st.integers(1, 9999))
def test_a_fraction_is_the_decimal_as_written(samples, ten_thousandths):
    exact = samples * ten_thousandths // 10_000
    written = float(f"0.{ten_thousandths:04d}")
    assert count_pruned(samples, written) == exact
    assert count_pruned(samples, Fraction(ten_thousandths, 10_000)) == exact


def test_where_floats_would_err():
    assert math.floor(100 * 0.29) == 28
    assert count_pruned(100, 0.29) == 29
    assert count_pruned(50_000, 0.2) == count_pruned(50_000, np.float32(0.2)) == 10_000
    assert count_pruned(3, 1e-5) == 0
    assert count_pruned(50_000, np.int64(7)) == 7
    assert type(count_pruned(50_000, np.int64(7))) is type(count_pruned(50_000, 0.2)) is int


@pytest.mark.parametrize(
    "prune",
    [True, np.True_, "0.2", Decimal("0.2"), None, -1, 100, 101, 0.0, 1.0, -0.2, 10.0, float("nan"), float("inf")],
)
def test_amounts_that_make_no_sense_are_refused(prune):
    for samples, wrong in ((100, prune), (1.5, 0.2)):
        with pytest.raises(ScheduleError):
            count_pruned(samples, wrong)


@given(st.integers(1, 500), st.integers(1, 520), st.data())
def test_kept_is_rounded_up_to_whole_batches(samples, batch_size, data):
    prune = data.draw(st.integers(0, samples - 1))
    assert count_kept(samples, prune) == samples - prune
    kept = count_kept(samples, prune, batch_size)
    assert samples - prune <= kept <= samples
    assert kept == samples or (kept % batch_size == 0 and kept - batch_size < samples - prune)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("samples", 0), ("batch_size", 0), ("batch_size", 1.5), ("batch_time", 0), ("batch_time", float("nan")),
        ("overhead", -1.0),
    ],
)  # fmt: skip
def test_costs_that_make_no_sense_are_refused(name, value):
    with pytest.raises(ScheduleError, match=name):
        CostModel(**({"samples": 100, "batch_size": 10, "batch_time": 0.1} | {name: value}))


def test_a_cost_model_of_numpy_numbers_is_one_of_plain_numbers():
    found = asdict(CostModel(np.int64(100), np.int32(10), np.float64(0.5), np.float32(0.25)))
    assert found == {"samples": 100, "batch_size": 10, "batch_time": 0.5, "overhead": 0.25}
    assert [type(value) for value in found.values()] == [int, int, float, float]


@given(
    st.floats(0.5, 30.0),
    st.sampled_from([60, 30, 200, (60, 60, 40, 40)]),
    st.sampled_from(["aligned", "printed"]),
)
def test_proposals_reach_the_target_in_the_order_promised(target, window, reading):
    if isinstance(window, tuple):
        reading = "aligned"
    found = propose(CIFAR, target, 200, window, reading=reading)
    assert 1 <= len(found) <= 5
    for p in found:
        assert (p.schedule.window, p.schedule.block, p.schedule.reading) == (window, 5, reading)
        assert p.prediction == CIFAR.predict(p.schedule, p.prune)
        assert p.prediction.saved_percent >= target
    keys = [(int((p.prediction.saved_percent - target) / 0.5), p.prune) for p in found]
    assert keys == sorted(keys)
    assert len({p.prune for p in found}) == len(found)


@pytest.mark.parametrize("target", [3.0, 15.0, 25.0])
def test_no_schedule_of_the_grid_comes_nearer_with_the_same_fraction(target):
    grid = [
        Schedule(200, 60, 60 * twelfths // 12, 5, count, attenuation)
        for twelfths in range(2, 7)
        for count in range(1, 5)
        for attenuation in (1.0, 1.5, 2.0)
    ]
    for p in propose(CIFAR, target, 200, 60):
        savings = [CIFAR.predict(schedule, p.prune).saved_percent for schedule in grid]
        assert p.prediction.saved_percent == min(saved for saved in savings if saved >= target)


def test_an_unreachable_target_says_what_can_be_reached():
    with pytest.raises(ScheduleError, match=r"Got 90%: the largest .* is (\d+\.\d\d)%") as caught:
        propose(CIFAR, 90, 200, 60)
    largest = float(str(caught.value).split(" is ")[1].split("%")[0])
    assert propose(CIFAR, largest - 0.01, 200, 60)
    with pytest.raises(ScheduleError, match="the largest"):
        propose(CIFAR, largest + 0.01, 200, 60)
    with pytest.raises(ScheduleError, match="Expected target_percent to be a finite number above 0"):
        propose(CIFAR, 0, 200, 60)


# What a run has saved, from its records alone.


def record(kept, seconds, overhead=0.0):
    return {"kept": kept, "seconds": seconds, "overhead": overhead}


def test_before_the_first_epoch_is_done_nothing_is_known():
    assert savings([], 100, 10) == {
        "epochs": 0,
        "pruned_epochs": 0,
        "visits": 0,
        "visits_saved": 0,
        "visits_saved_percent": 0.0,
        "visits_by_weight": 0,
        "batches_saved": 0,
        "seconds": 0,
        "overhead_seconds": 0,
        "seconds_saved": None,
    }


def test_visits_batches_and_seconds_are_added_up():
    history = [record(100, 9.0, 0.5), record(100, 4.0), record(75, 3.0, 0.25), record(100, 5.0), record(75, 3.5)]
    found = savings(history, 100, 32)
    assert (found["epochs"], found["pruned_epochs"]) == (5, 2)
    assert (found["visits"], found["visits_saved"], found["visits_saved_percent"]) == (450, 50, 10.0)
    assert found["batches_saved"] == 2  # 4 batches, or 3
    assert (found["seconds"], found["overhead_seconds"]) == (24.5, 0.75)
    assert found["seconds_saved"] == 1.5 + 1.0  # beside 4.5: the first epoch warmed up


def test_batches_are_not_known_without_their_size():
    assert savings([record(75, 2.0)], 100)["batches_saved"] is None


@given(st.integers(3, 60), st.integers(1, 20), st.data())
def test_what_is_left_out_for_good_is_no_saving(samples, size, data):
    """Against a plain loop, where some records name it; an epoch is pruned if it lacks only one sample more."""
    history, whole_seconds, saved, batches = [], [], 0, 0
    for number in range(data.draw(st.integers(1, 8))):
        without = data.draw(st.sampled_from([None, 0, 1, samples // 2]))
        pruned = data.draw(st.sampled_from([0, 1, samples // 3]))
        whole = samples - (without or 0)
        history.append(record(whole - pruned, 1.0 + number) | ({} if without is None else {"without": without}))
        if number and not pruned:
            whole_seconds.append(1.0 + number)
        saved += pruned
        batches += math.ceil(whole / size) - math.ceil((whole - pruned) / size)
    cut = [one for one in history if one["kept"] < samples - one.get("without", 0)]
    beside = median(whole_seconds) if whole_seconds else None
    assert seconds_of_whole_epoch(history, samples) == beside
    found = savings(history, samples, size)
    assert (found["pruned_epochs"], found["visits_saved"], found["batches_saved"]) == (len(cut), saved, batches)
    assert found["visits_saved_percent"] == pytest.approx(100 * saved / (found["visits"] + saved))
    known = cut and beside is not None
    assert found["seconds_saved"] == (sum(beside - one["seconds"] for one in cut) if known else None)


@given(schedules(max_epochs=12), st.integers(1, 50), st.data())
def test_a_run_saves_what_it_does_not_deliver(schedule, samples, data):
    """Against a plain loop over what each epoch delivers, and as the run has foretold."""
    prune, size = data.draw(st.integers(0, samples - 1)), data.draw(st.none() | st.integers(1, 20))
    run = pruner(samples, schedule, prune=prune, batch_size=size)
    foretold, delivered = None if size is None else run.total_batches(), []
    for epoch in run.epochs():
        kept = np.flatnonzero(epoch.keep)
        run.observe(np.sin(kept + epoch.number), kept)
        delivered.append(kept.size)
    saved = run.saved
    assert saved["visits"] == sum(delivered) == int(run.visits.sum(dtype=int))
    assert saved["visits_saved"] == sum(samples - number for number in delivered)
    assert saved["pruned_epochs"] == sum(number < samples for number in delivered)
    if size is None:
        assert saved["batches_saved"] is None
    else:
        assert foretold == sum(math.ceil(number / size) for number in delivered)
        assert saved["batches_saved"] == schedule.epochs * math.ceil(samples / size) - foretold


def test_inspect_has_it_under_one_key(tmp_path):
    run = Pruner(40, Schedule(4, 4, 1, 1, 1), prune=10, store=tmp_path, batch_size=8)
    assert inspect(tmp_path)["saved"] == run.saved
    for epoch in run.epochs():
        kept = np.flatnonzero(epoch.keep)
        run.observe(np.sin(kept + epoch.number), kept)
    found = inspect(tmp_path)["saved"]
    # What the last commit itself took is known to the run only.
    assert {**found, "overhead_seconds": 0} == {**run.saved, "overhead_seconds": 0}
    assert found["batches_saved"] == 3
    assert json.loads(json.dumps(found)) == found
