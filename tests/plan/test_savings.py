"""What a run has saved, from its records alone."""

import json
import math
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, Schedule
from prunedata.findings.inspection import inspect
from prunedata.plan.savings import savings, seconds_of_whole_epoch
from tests.common.strategies import pruner, schedules


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
def test_a_run_and_its_store_say_the_same_and_its_visits_are_those_counted(schedule, samples, data):
    prune, size = data.draw(st.integers(0, samples - 1)), data.draw(st.none() | st.integers(1, 20))
    run = pruner(samples, schedule, prune=prune, batch_size=size)
    for epoch in run.epochs():
        kept = np.flatnonzero(epoch.keep)
        run.observe(np.sin(kept + epoch.number), kept)
    saved = run.saved
    assert saved == savings(run.history, samples, size)
    assert saved["visits"] == int(run.visits.sum(dtype=int))
    assert saved["visits"] + saved["visits_saved"] == samples * schedule.epochs
    if size is not None:
        assert saved["batches_saved"] == schedule.epochs * -(-samples // size) - run.total_batches()


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
